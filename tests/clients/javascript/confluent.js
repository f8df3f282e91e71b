// The client @confluentinc/kafka-javascript, which is librdkafka, against a broker: its newer face, made like
// kafkajs, for the producer and the admin, and its older one for consumers, which can be given partitions without a
// group.

"use strict";

const assert = require("node:assert/strict");
const { CODES, KafkaConsumer, KafkaJS } = require("@confluentinc/kafka-javascript");
const { SAMPLE_COUNT, SAMPLE_TIME, called, failure, sample, sampleMessages, serve } = require("./scenario.js");

const ADDRESS = process.argv[2];
const TIMEOUT_MS = 30_000;

const kafka = new KafkaJS.Kafka({ kafkaJS: { brokers: [ADDRESS], logLevel: KafkaJS.logLevel.NOTHING } });

async function withClient(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const withAdmin = (work) => withClient(kafka.admin(), work);
const withProducer = (options, work) => withClient(kafka.producer(options), work);

async function withConsumer(work) {
  const consumer = new KafkaConsumer(
    { "bootstrap.servers": ADDRESS, "group.id": "none", "enable.auto.commit": false },
    { "auto.offset.reset": "error" },
  );
  await called(consumer, "connect", {});
  consumer.setDefaultConsumeTimeout(200);
  try {
    return await work(consumer);
  } finally {
    await called(consumer, "disconnect");
  }
}

async function write(topic, codec = "none") {
  await withProducer({ "compression.codec": codec, "enable.idempotence": true }, async (producer) => {
    const reports = await producer.send({ topic, messages: sampleMessages() });
    assert.ok(reports.every(({ errorCode }) => errorCode === 0));
  });
}

async function expectSample(topic, first = 0) {
  await withConsumer(async (consumer) => {
    consumer.assign([{ topic, partition: 0, offset: first }]);
    const found = [];
    const deadline = Date.now() + TIMEOUT_MS;
    while (found.length < SAMPLE_COUNT - first) {
      assert.ok(Date.now() < deadline, `${found.length} messages came`);
      found.push(...(await called(consumer, "consume", SAMPLE_COUNT)));
    }
    const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString());
    found.forEach((message, i) => {
      const wanted = sample(first + i);
      assert.equal(message.offset, first + i);
      assert.deepEqual([text(message.key), text(message.value)], [wanted.key, wanted.value]);
      assert.equal(message.timestamp, wanted.timestamp);
      const headers = message.headers.map((header) => Object.entries(header)[0]);
      assert.deepEqual(headers.map(([name, value]) => [name, text(value)]), wanted.headers);
    });
  });
}

async function seek(topic) {
  await write(topic);
  for (const offset of [0, 1, 37, SAMPLE_COUNT - 1]) {
    await expectSample(topic, offset);
  }
  await withConsumer(async (consumer) => {
    const ends = await called(consumer, "queryWatermarkOffsets", topic, 0, TIMEOUT_MS);
    assert.deepEqual([ends.lowOffset, ends.highOffset], [0, SAMPLE_COUNT]);
    const asked = [{ topic, partition: 0, offset: SAMPLE_TIME + 495 }];
    const [found] = await called(consumer, "offsetsForTimes", asked, TIMEOUT_MS);
    assert.equal(found.offset, 50);
  });
}

async function tooLarge(topic) {
  await withProducer({ "message.max.bytes": 10_000_000 }, async (producer) => {
    const error = await failure(producer.send({ topic, messages: [{ value: "x".repeat(2_000_000) }] }));
    assert.equal(error.code, CODES.ERRORS.ERR_MSG_SIZE_TOO_LARGE);
    const [report] = await producer.send({ topic, messages: [{ value: "x".repeat(1_000_000) }] });
    assert.equal(report.baseOffset, "0");
  });
}

async function topics(topic) {
  await withAdmin(async (admin) => {
    const wanted = { topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] };
    assert.equal(await admin.createTopics(wanted), true);
    assert.equal(await admin.createTopics(wanted), false); // it exists already
    assert.ok((await admin.listTopics()).includes(topic));
    const [described] = await admin.fetchTopicMetadata({ topics: [topic] });
    assert.equal(described.partitions.length, 2);
    await admin.deleteTopics({ topics: [topic] });
    assert.ok(!(await admin.listTopics()).includes(topic));
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
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "40" }] });
    const [ends] = await admin.fetchTopicOffsets(topic);
    assert.equal(ends.low, "40");
  });
  await expectSample(topic, 40);
}

const withTransactions = (topic, work) =>
  withProducer({ "transactional.id": topic, kafkaJS: { transactionTimeout: 20_000 } }, work);

async function committedValues(topic, count) {
  return withConsumer(async (consumer) => {
    consumer.assign([{ topic, partition: 0, offset: 0 }]);
    const found = [];
    const deadline = Date.now() + TIMEOUT_MS;
    while (found.length < count) {
      assert.ok(Date.now() < deadline, `${found.length} messages came`);
      found.push(...(await called(consumer, "consume", count)));
    }
    return found.map(({ value }) => value.toString());
  });
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

/** Offsets of a member of a group count with the transaction that they were sent in. */
async function transactionOffsets(topic) {
  await write(topic);
  const groupId = `group-of-${topic}`;
  const options = { kafkaJS: { groupId, fromBeginning: true, autoCommit: false } };
  await withClient(kafka.consumer(options), async (consumer) => {
    await consumer.subscribe({ topic });
    await new Promise((resolve, reject) => {
      consumer.run({ eachMessage: async () => resolve() }).catch(reject);
    });
    await withTransactions(topic, async (producer) => {
      for (const [offset, end] of [["7", "commit"], ["8", "abort"]]) {
        const transaction = await producer.transaction();
        const topics = [{ topic, partitions: [{ partition: 0, offset }] }];
        await transaction.sendOffsets({ consumer, topics });
        await transaction[end]();
      }
    });
  });
  const [found] = await withAdmin((admin) => admin.fetchOffsets({ groupId, topics: [topic] }));
  assert.equal(found.partitions[0].offset, "7");
}

serve({
  write,
  read: (topic) => expectSample(topic),
  seek,
  "too-large": tooLarge,
  topics,
  "list-offsets": listOffsets,
  "delete-records": deleteRecords,
  transactions,
  "transaction-offsets": transactionOffsets,
});
