// What the programs of all libraries for Node have in common: they obey lines on their input, each answered with a line
// of JSON, and end at the end of their input. The other side is bench/peers/programs.py.

import { createInterface } from 'node:readline';
import { Agent, request } from 'undici';

export const CLIENTS = 64;
export const CALLS_AT_ONCE = 128;
const BATCH = 1000;
const BATCHES_AT_ONCE = 4;
const DAY_MS = 86_400_000;

const agent = new Agent({ connections: CALLS_AT_ONCE });

// The call that a job is about, over connections that are kept.
export async function post(job) {
  const answer = await request(job.url, {
    method: 'POST',
    dispatcher: agent,
    headers: { 'content-type': 'application/json', 'mainspring-scheduled-at': String(job.executeAt) },
    body: JSON.stringify(job.payload),
  });
  await answer.body.dump();
  if (answer.statusCode !== 200) throw new Error(`Expected 200, got ${answer.statusCode}`);
}

const jobAt = (executeAt, url) => ({ url, executeAt, payload: { order: 'A-1001', kind: 'reminder' } });

// `add(job)` creates one job, `addBulk(jobs)` many, each due at its `executeAt`.
export function client({ add, addBulk }) {
  const commands = {
    // create SECONDS URL: one job per call, so many callers at once, due a day ahead
    async create(seconds, url) {
      const startedAt = performance.now();
      const endsAt = startedAt + Number(seconds) * 1000;
      let count = 0;
      const caller = async () => {
        while (performance.now() < endsAt) {
          await add(jobAt(Date.now() + DAY_MS + count, url));
          count += 1;
        }
      };
      await Promise.all(Array.from({ length: CLIENTS }, caller));
      return { count, seconds: (performance.now() - startedAt) / 1000 };
    },

    // bulk COUNT FIRST_MS RATE URL: jobs due so many a second from an instant on; all at that instant if RATE is 0
    async bulk(count, first, rate, url) {
      const jobs = Array.from({ length: Number(count) }, (_, index) =>
        jobAt(Number(first) + (Number(rate) ? Math.floor((index * 1000) / Number(rate)) : 0), url));
      const startedAt = performance.now();
      let next = 0;
      const caller = async () => {
        while (next < jobs.length) {
          const batch = jobs.slice(next, (next += BATCH));
          await addBulk(batch);
        }
      };
      await Promise.all(Array.from({ length: BATCHES_AT_ONCE }, caller));
      return { count: jobs.length, seconds: (performance.now() - startedAt) / 1000 };
    },
  };
  obey(commands);
}

export function worker() {
  obey({});
}

async function obey(commands) {
  process.stdout.write('{"count":0,"seconds":0}\n'); // it is ready
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    process.stdout.write(`${JSON.stringify(await commands[command](...words))}\n`);
  }
  process.exit(0);
}
