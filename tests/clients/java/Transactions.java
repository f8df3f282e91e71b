import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The scenarios of {@link KafkaClients} that are about transactions. Each has a transactional id like its topic. */
final class Transactions {
    private static final int PARTITIONS = 2;
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private final String address;
    private final Admin admin;

    Transactions(String address, Admin admin) {
        this.address = address;
        this.admin = admin;
    }

    void run(String scenario, String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        switch (scenario) {
            case "transactions" -> transactions(topic);
            case "transaction-fenced" -> fenced(topic);
            case "transaction-timed-out" -> timedOut(topic);
            case "transaction-offsets" -> offsets(topic);
            case "transaction-of-a-zombie" -> zombie(topic);
            case "transaction-admin" -> administration(topic);
            case "transaction-hanging" -> hanging(topic);
            default -> throw new AssertionError("there is no scenario " + scenario);
        }
    }

    /** Committed and aborted ones in turn, each over all partitions, by one producer. */
    private void transactions(String topic) throws Exception {
        List<String> committed = new ArrayList<>();
        List<String> all = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(topic, Map.of())) {
            producer.initTransactions();
            for (int round = 0; round < 20; round++) {
                boolean commits = round % 3 != 1;
                producer.beginTransaction();
                for (int i = 0; i < 2 * PARTITIONS; i++) {
                    String value = round + "-" + i;
                    producer.send(new ProducerRecord<>(topic, i % PARTITIONS, null, value));
                    all.add(value);
                    if (commits) {
                        committed.add(value);
                    }
                }
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            // One that is open holds back those who read what is committed, and nobody else.
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            TopicPartition first = new TopicPartition(topic, 0);
            try (KafkaConsumer<String, String> patient = reader("read_committed");
                KafkaConsumer<String, String> eager = reader("read_uncommitted")) {
                long stable = patient.endOffsets(List.of(first)).get(first);
                KafkaClients.expect(stable + 1, eager.endOffsets(List.of(first)).get(first));
            }
            KafkaClients.expect(sorted(committed), sorted(values(topic, "read_committed", committed.size())));
            producer.commitTransaction();
            all.add("open");
            committed.add("open");
        }
        KafkaClients.expect(sorted(committed), sorted(values(topic, "read_committed", committed.size())));
        KafkaClients.expect(sorted(all), sorted(values(topic, "read_uncommitted", all.size())));
    }

    /** A second instance takes the id: what the first had open is aborted, and the first is told (KIP-98). */
    private void fenced(String topic) throws Exception {
        try (KafkaProducer<String, String> first = producer(topic, Map.of());
            KafkaProducer<String, String> second = producer(topic, Map.of())) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "of the first")).get();
            second.initTransactions();
            KafkaClients.expectThrown(ProducerFencedException.class, first::commitTransaction);
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "of the second"));
            second.commitTransaction();
        }
        KafkaClients.expect(List.of("of the second"), values(topic, "read_committed", 1));
    }

    private void timedOut(String topic) throws Exception {
        try (KafkaProducer<String, String> slow = producer(topic, Map.of("transaction.timeout.ms", 500));
            KafkaProducer<String, String> other = producer(topic + "-other", Map.of())) {
            slow.initTransactions();
            slow.beginTransaction();
            slow.send(new ProducerRecord<>(topic, 0, null, "too late")).get();
            other.initTransactions();
            other.beginTransaction();
            other.send(new ProducerRecord<>(topic, 0, null, "in time"));
            other.commitTransaction();
            // It stands behind the open one, so it is read when that one is aborted.
            KafkaClients.expect(List.of("in time"), values(topic, "read_committed", 1));
            // The epoch before the last is told that its transaction has had another end, not that it is fenced.
            KafkaClients.expectThrown(InvalidTxnStateException.class, slow::commitTransaction);
        }
        KafkaClients.expect(TransactionState.COMPLETE_ABORT, described(topic).state());
    }

    /** Offsets count with the transaction they were sent in, or not at all. */
    private void offsets(String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> member = member(topic);
            KafkaProducer<String, String> producer = producer(topic, Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(7, "seven")), member.groupMetadata());
            producer.send(new ProducerRecord<>(topic, 1, null, "with offsets"));
            producer.commitTransaction();
            KafkaClients.expect(new OffsetAndMetadata(7, "seven"), member.committed(Set.of(first)).get(first));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(8)), member.groupMetadata());
            producer.abortTransaction();
            KafkaClients.expect(7L, member.committed(Set.of(first)).get(first).offset());
        }
        KafkaClients.expect(List.of("with offsets"), values(topic, "read_committed", 1));
    }

    /** Who is no member of the group any more commits nothing for it (KIP-447). */
    private void zombie(String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        ConsumerGroupMetadata left;
        try (KafkaConsumer<String, String> member = member(topic)) {
            left = member.groupMetadata();
        }
        try (KafkaProducer<String, String> producer = producer(topic, Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "never")).get();
            KafkaClients.expectThrown(
                CommitFailedException.class,
                () -> producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(1)), left));
            producer.abortTransaction();
        }
        var committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
        KafkaClients.expect(null, committed.get(first));
    }

    private void administration(String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        KafkaClients.expectFailure(
            TransactionalIdNotFoundException.class, admin.describeTransactions(List.of(topic)).description(topic));
        try (KafkaProducer<String, String> producer = producer(topic, Map.of("transaction.timeout.ms", 54_321))) {
            producer.initTransactions();
            KafkaClients.expect(TransactionState.EMPTY, described(topic).state());
            producer.beginTransaction();
            long offset = producer.send(new ProducerRecord<>(topic, 0, null, "open")).get().offset();
            TransactionDescription open = described(topic);
            KafkaClients.expect(TransactionState.ONGOING, open.state());
            KafkaClients.expect(Set.of(first), open.topicPartitions());
            KafkaClients.expect(54_321L, open.transactionTimeoutMs());
            KafkaClients.expect(true, open.transactionStartTimeMs().isPresent());

            KafkaClients.expect(1, listed(topic, new ListTransactionsOptions()));
            var ongoing = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING));
            KafkaClients.expect(1, listed(topic, ongoing));
            var complete = new ListTransactionsOptions().filterStates(Set.of(TransactionState.COMPLETE_COMMIT));
            KafkaClients.expect(0, listed(topic, complete));
            var ofProducer = new ListTransactionsOptions().filterProducerIds(Set.of(open.producerId()));
            KafkaClients.expect(1, listed(topic, ofProducer));
            KafkaClients.expect(0, listed(topic, new ListTransactionsOptions().filterOnDuration(3_600_000)));
            var byName = new ListTransactionsOptions().filterOnTransactionalIdPattern(topic.substring(0, 9) + ".*");
            KafkaClients.expect(1, listed(topic, byName));
            var byOther = new ListTransactionsOptions().filterOnTransactionalIdPattern("other-.*");
            KafkaClients.expect(0, listed(topic, byOther));

            ProducerState state = producers(first).get(0);
            KafkaClients.expect(open.producerId(), state.producerId());
            KafkaClients.expect(open.producerEpoch(), state.producerEpoch());
            KafkaClients.expect(OptionalLong.of(offset), state.currentTransactionStartOffset());

            var fencing = admin.fenceProducers(List.of(topic));
            KafkaClients.expect(open.producerId(), fencing.producerId(topic).get());
            KafkaClients.expect(true, fencing.epochId(topic).get() > open.producerEpoch());
            KafkaClients.expectThrown(ProducerFencedException.class, producer::commitTransaction);
        }
        KafkaClients.expect(List.of(), values(topic, "read_committed", 0));
        KafkaClients.expect(OptionalLong.empty(), producers(first).get(0).currentTransactionStartOffset());
    }

    /** An operator ends in its partition what the producer has left open (KIP-664). */
    private void hanging(String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(topic, Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "hanging")).get();
            ProducerState state = producers(first).get(0);
            short epoch = (short) state.producerEpoch();
            int coordinatorEpoch = state.coordinatorEpoch().orElse(0);
            KafkaClients.expectFailure(
                InvalidProducerEpochException.class,
                admin.abortTransaction(
                    new AbortTransactionSpec(first, state.producerId(), (short) (epoch - 1), coordinatorEpoch)).all());
            admin.abortTransaction(new AbortTransactionSpec(first, state.producerId(), epoch, coordinatorEpoch))
                .all()
                .get();
            KafkaClients.expect(OptionalLong.empty(), producers(first).get(0).currentTransactionStartOffset());
            admin.fenceProducers(List.of(topic)).all().get();
        }
        KafkaClients.expect(List.of(), values(topic, "read_committed", 0));
    }

    // ---- what the scenarios share

    private TransactionDescription described(String transactionalId) throws Exception {
        return admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
    }

    private int listed(String transactionalId, ListTransactionsOptions options) throws Exception {
        return (int) admin.listTransactions(options).all().get().stream()
            .filter(one -> one.transactionalId().equals(transactionalId))
            .count();
    }

    private List<ProducerState> producers(TopicPartition partition) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
    }

    private KafkaProducer<String, String> producer(String transactionalId, Map<String, Object> options) {
        Map<String, Object> all = new HashMap<>(options);
        all.put("bootstrap.servers", address);
        all.put("transactional.id", transactionalId);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> reader(String isolation) {
        Map<String, Object> all = Map.of(
            "bootstrap.servers", address,
            "isolation.level", isolation,
            "auto.offset.reset", "none",
            "fetch.max.wait.ms", 50);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** The one member of a group called like the topic, with all of its partitions. */
    private KafkaConsumer<String, String> member(String topic) {
        Map<String, Object> all = Map.of(
            "bootstrap.servers", address,
            "group.id", topic,
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 50);
        KafkaConsumer<String, String> member =
            new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(topic));
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (member.assignment().size() < PARTITIONS) {
            KafkaClients.expect(true, System.nanoTime() < deadline);
            member.poll(Duration.ofMillis(50));
        }
        return member;
    }

    /** All values up to the end, which must be so many; the end itself is waited for if they have not come yet. */
    private List<String> values(String topic, String isolation, int count) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) {
            partitions.add(new TopicPartition(topic, i));
        }
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = reader(isolation)) {
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            while (found.size() < count || !isAtEnd(reader, partitions)) {
                KafkaClients.expect(true, System.nanoTime() < deadline);
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }

    private static boolean isAtEnd(KafkaConsumer<String, String> reader, List<TopicPartition> partitions) {
        Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
        return partitions.stream().allMatch(one -> reader.position(one) >= ends.get(one));
    }

    private static List<String> sorted(List<String> values) {
        return values.stream().sorted().toList();
    }
}
