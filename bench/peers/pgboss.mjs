// pg-boss as its documentation suggests: one queue, jobs that start later, a worker that takes them in batches and looks
// as often as it may.
//
//     node pgboss.mjs client|worker POSTGRESQL_URL

import PgBoss from 'pg-boss';
import { CLIENTS, client, post, worker } from './program.mjs';

const QUEUE = 'timers';
const BATCH = 500;
const WORKERS = 4;
const SHORTEST_POLL_SECONDS = 0.5;

const [role, url] = process.argv.slice(2);
const boss = new PgBoss({ connectionString: url, max: role === 'client' ? CLIENTS : 10 });
boss.on('error', (error) => console.error(error));
await boss.start();
await boss.createQueue(QUEUE);

if (role === 'client') {
  client({
    add: (job) => boss.send(QUEUE, job, { startAfter: new Date(job.executeAt) }),
    addBulk: (jobs) => boss.insert(jobs.map((job) => ({ name: QUEUE, data: job, startAfter: new Date(job.executeAt) }))),
  });
} else {
  const options = { batchSize: BATCH, pollingIntervalSeconds: SHORTEST_POLL_SECONDS };
  for (let number = 0; number < WORKERS; number += 1) {
    await boss.work(QUEUE, options, (jobs) => Promise.all(jobs.map((job) => post(job.data))));
  }
  worker();
}
