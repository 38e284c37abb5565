// BullMQ as its guide suggests: one queue, delayed jobs that are removed when they are done, a worker with concurrency.
//
//     node bullmq.mjs client|worker REDIS_URL

import { Queue, Worker } from 'bullmq';
import { CALLS_AT_ONCE, client, post, worker } from './program.mjs';

const [role, url] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

const optionsOf = (job) => ({ delay: Math.max(0, job.executeAt - Date.now()), removeOnComplete: true });

if (role === 'client') {
  const queue = new Queue('timers', { connection });
  await queue.waitUntilReady();
  client({
    add: (job) => queue.add('call', job, optionsOf(job)),
    addBulk: (jobs) => queue.addBulk(jobs.map((job) => ({ name: 'call', data: job, opts: optionsOf(job) }))),
  });
} else {
  const running = new Worker('timers', (job) => post(job.data), { connection, concurrency: CALLS_AT_ONCE });
  running.on('failed', (_, error) => console.error(error));
  running.on('error', (error) => console.error(error));
  await running.waitUntilReady();
  worker();
}
