// What the Node programs share: they run one scenario for each line of their input.
//
// The program's argument is the broker's address. A line is the name of a scenario, a topic that no other scenario
// uses and, for some, an option. The answer is a line too: "ok", or "failed" and why.

"use strict";

const assert = require("node:assert/strict");
const readline = require("node:readline");

// The records of "write" and "read", which the programs of all languages know.
const SAMPLE_COUNT = 100;
const SAMPLE_TIME = 1_700_000_000_000;

function sample(i) {
  return {
    key: i % 5 === 0 ? null : `key-${i}`,
    value: i % 7 === 3 ? null : `value-${i} `.repeat((i % 10) + 1),
    timestamp: SAMPLE_TIME + 10 * i,
    headers: [
      ["n", `${i}`],
      ["h", "1"],
      ["h", "2"],
      ["empty", ""],
    ],
  };
}

/** All records as the message objects of kafkajs, which has repeated headers as one with several values. */
function sampleMessages() {
  return Array.from({ length: SAMPLE_COUNT }, (_, i) => {
    const { key, value, timestamp } = sample(i);
    return {
      key,
      value,
      partition: 0,
      timestamp: `${timestamp}`,
      headers: { n: `${i}`, h: ["1", "2"], empty: "" },
    };
  });
}

/** The error of a promise that must not be kept. */
async function failure(promise) {
  let kept;
  try {
    kept = await promise;
  } catch (error) {
    return error;
  }
  return assert.fail(`no error, but ${JSON.stringify(kept)}`);
}

/** Calls a function of the kind that ends with a callback. */
function called(target, method, ...args) {
  return new Promise((resolve, reject) => {
    target[method](...args, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

async function serve(scenarios) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [name, topic, option] = line.split(" ");
    try {
      assert.ok(name in scenarios, `there is no scenario ${name}`);
      await scenarios[name](topic, option);
      console.log("ok");
    } catch (error) {
      console.error(error);
      console.log(`failed ${error.message}`.replaceAll("\n", " "));
    }
  }
}

module.exports = { SAMPLE_COUNT, SAMPLE_TIME, called, failure, sample, sampleMessages, serve };
