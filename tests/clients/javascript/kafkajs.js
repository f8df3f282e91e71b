// The kafkajs client against a broker. It speaks old versions of the protocol, none of them flexible: Produce 7,
// Metadata 6, ApiVersions 2.
//
// Its consumer is always a member of a group: it is shown with transactions only. Its compression other than gzip is
// in packages of their own.

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const { SAMPLE_COUNT, SAMPLE_TIME, failure, sampleMessages, serve } = require("./scenario.js");

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

/** Requests that were sent, as "Produce 7". */
const sent = new Set();

function logCreator() {
  return ({ log }) => {
    const found = /^Request (\w+)\(key: \d+, version: (\d+)\)/.exec(log.message);
    if (found) {
      sent.add(`${found[1]} ${found[2]}`);
    }
  };
}

/** What the environment asks for: a CA to trust, a certificate to show, a user with a password. */
function security() {
  const { CLIENT_CA, CLIENT_CERTIFICATE, CLIENT_KEY, CLIENT_USER, CLIENT_PASSWORD } = process.env;
  const read = (path) => path && fs.readFileSync(path, "utf8");
  const settings = {};
  if (CLIENT_CA) {
    settings.ssl = { ca: [read(CLIENT_CA)], cert: read(CLIENT_CERTIFICATE), key: read(CLIENT_KEY) };
  }
  if (CLIENT_USER) {
    settings.sasl = { mechanism: "scram-sha-512", username: CLIENT_USER, password: CLIENT_PASSWORD };
  }
  return settings;
}

const kafka = new Kafka({
  brokers: [process.argv[2]],
  logLevel: logLevel.DEBUG,
  logCreator,
  retry: { retries: 2 },
  ...security(),
});

async function withClient(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const withAdmin = (work) => withClient(kafka.admin(), work);
const withProducer = (work, options) => withClient(kafka.producer(options), work);

async function write(topic, codec = "none") {
  await withProducer(async (producer) => {
    const reports = await producer.send({ topic, compression: CODECS[codec], messages: sampleMessages() });
    assert.deepEqual(reports.map(({ partition, baseOffset }) => [partition, baseOffset]), [[0, "0"]]);
  });
}

async function idempotent(topic) {
  await withProducer(
    async (producer) => {
      for (const [i, message] of sampleMessages().entries()) {
        const [report] = await producer.send({ topic, messages: [message] });
        assert.equal(report.baseOffset, `${i}`);
      }
    },
    { idempotent: true },
  );
}

async function acks(topic) {
  await withProducer(async (producer) => {
    // The requests of one connection are taken in order: once the last is acknowledged, the first is in as well.
    for (const acks of [0, 1, -1]) {
      await producer.send({ topic, acks, messages: sampleMessages() });
    }
  });
  const [ends] = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
  assert.equal(ends.high, `${3 * SAMPLE_COUNT}`);
}

async function tooLarge(topic) {
  await withProducer(async (producer) => {
    const error = await failure(producer.send({ topic, messages: [{ value: "x".repeat(2_000_000) }] }));
    assert.equal(error.type, "MESSAGE_TOO_LARGE");
    const [report] = await producer.send({ topic, messages: [{ value: "x".repeat(1_000_000) }] });
    assert.equal(report.baseOffset, "0");
  });
}

async function topics(topic) {
  await withAdmin(async (admin) => {
    const wanted = { topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] };
    assert.equal(await admin.createTopics(wanted), true);
    assert.equal(await admin.createTopics(wanted), false); // it exists already
    const refused = await failure(admin.createTopics({ topics: [{ topic: "no/name" }] }));
    assert.equal(refused.errors[0].type, "INVALID_TOPIC_EXCEPTION");
    assert.ok((await admin.listTopics()).includes(topic));
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    const described = await admin.fetchTopicMetadata({ topics: [topic] });
    assert.equal(described.topics[0].partitions.length, 5);
    await admin.deleteTopics({ topics: [topic] });
    assert.ok(!(await admin.listTopics()).includes(topic));
    const tiredOfRetries = await failure(admin.deleteTopics({ topics: [topic] }));
    assert.equal(tiredOfRetries.cause.type, "UNKNOWN_TOPIC_OR_PARTITION");
  });
}

async function configs(topic) {
  await write(topic);
  await withAdmin(async (admin) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    const change = { name: "retention.ms", value: "1000" };
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [change] }] });
    const described = await admin.describeConfigs({
      includeSynonyms: true,
      resources: [{ ...resource, configNames: ["retention.ms"] }],
    });
    const [entry] = described.resources[0].configEntries;
    assert.equal(entry.configValue, "1000");
    assert.equal(entry.configSynonyms[0].configName, "retention.ms");
  });
}

async function listOffsets(topic) {
  await write(topic);
  await withAdmin(async (admin) => {
    const [ends] = await admin.fetchTopicOffsets(topic);
    assert.deepEqual([ends.low, ends.high], ["0", `${SAMPLE_COUNT}`]);
    const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, SAMPLE_TIME + 495);
    assert.equal(found.offset, "50");
  });
}

async function deleteRecords(topic) {
  await write(topic);
  await withAdmin(async (admin) => {
    await admin.fetchTopicOffsets(topic); // kafkajs must have met the topic
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "40" }] });
    const [ends] = await admin.fetchTopicOffsets(topic);
    assert.deepEqual([ends.low, ends.high], ["40", `${SAMPLE_COUNT}`]);
  });
}

async function cluster() {
  const described = await withAdmin((admin) => admin.describeCluster());
  const [{ host, port, nodeId }] = described.brokers;
  assert.equal(`${host}:${port}`, process.argv[2]);
  assert.equal(described.controller, nodeId);
  assert.ok(described.clusterId);
}

async function leaders() {
  const listed = await withAdmin((admin) => admin.listPartitionReassignments({}));
  assert.deepEqual(listed.topics, []);
}

const withTransactions = (topic, work) =>
  withProducer(work, { transactionalId: topic, idempotent: true, maxInFlightRequests: 1 });

/** What a member of a group, which reads what is committed, finds; so many are waited for. */
async function committedValues(topic, count) {
  const found = [];
  await withClient(kafka.consumer({ groupId: `reader-of-${topic}`, maxWaitTimeInMs: 100 }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const eachMessage = async ({ message }) => {
        found.push(message.value.toString());
        if (found.length === count) {
          resolve();
        }
      };
      consumer.run({ eachMessage }).catch(reject);
    });
  });
  return found;
}

async function transactions(topic) {
  await withTransactions(topic, async (producer) => {
    for (let round = 0; round < 6; round++) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: [{ value: `${round}-a` }, { value: `${round}-b` }] });
      await (round % 3 === 1 ? transaction.abort() : transaction.commit());
    }
  });
  const wanted = [0, 2, 3, 5].flatMap((round) => [`${round}-a`, `${round}-b`]);
  assert.deepEqual(await committedValues(topic, wanted.length), wanted);
}

async function transactionOffsets(topic) {
  const groupId = `group-of-${topic}`;
  const sendOffset = async (transaction, offset) => {
    const topics = [{ topic, partitions: [{ partition: 0, offset }] }];
    await transaction.sendOffsets({ consumerGroupId: groupId, topics });
  };
  await write(topic);
  await withTransactions(topic, async (producer) => {
    const kept = await producer.transaction();
    await sendOffset(kept, "7");
    await kept.send({ topic, messages: [{ value: "with an offset" }] });
    await kept.commit();
    const dropped = await producer.transaction();
    await sendOffset(dropped, "8");
    await dropped.abort();
  });
  const [found] = await withAdmin((admin) => admin.fetchOffsets({ groupId, topics: [topic] }));
  assert.equal(found.partitions[0].offset, "7");
}

async function versions(topic) {
  sent.clear();
  await idempotent(topic);
  await listOffsets(`${topic}-2`);
  for (const request of ["ApiVersions 2", "Metadata 6", "InitProducerId 1", "Produce 7", "ListOffsets 3"]) {
    assert.ok(sent.has(request), `${request} was not sent, but ${[...sent]}`);
  }
}

serve({
  write,
  idempotent,
  acks,
  "too-large": tooLarge,
  topics,
  configs,
  "list-offsets": listOffsets,
  "delete-records": deleteRecords,
  cluster,
  leaders,
  versions,
  transactions,
  "transaction-offsets": transactionOffsets,
});
