import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A log of Kafka's own, written and cleaned by Kafka's own classes as it is told.
 *
 * Commands come on the standard input, each a letter and its arguments, until the input ends:
 *
 *   N  folder (UTF)                                   a new log in an empty folder TOPIC-PARTITION; the one before is closed
 *   A  size int32, batches                            append them with the offsets that they have
 *   R                                                 roll
 *   C  first dirty int64, uncleanable int64, now int64, delete.retention.ms int64, segment.bytes int32,
 *      dedupe memory int32, load factor float64       one pass; answered with
 *        next dirty int64, end of what may be cleaned int64, number of segments int32,
 *        and for each: base offset int64, size int32, log, size int32, transaction index
 */
public class CleanerOracle {
    private static final int EPOCH = Integer.MAX_VALUE;
    private static final int BATCH_BYTES = 1 << 20;

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        CleanerOracle oracle = null;
        for (int command = in.read(); command >= 0; command = in.read()) {
            switch (command) {
                case 'N' -> {
                    if (oracle != null) {
                        try {
                            oracle.log.close();
                        } catch (RuntimeException gone) {
                            // Its folder may be removed by now: only its descriptors matter.
                        }
                    }
                    oracle = new CleanerOracle(new File(in.readUTF()));
                }
                case 'A' -> oracle.append(in);
                case 'R' -> oracle.log.roll(Optional.empty());
                case 'C' -> {
                    oracle.clean(in, out);
                    out.flush();
                }
                default -> throw new IllegalArgumentException("no such command: " + command);
            }
        }
    }

    private final UnifiedLog log;

    private CleanerOracle(File folder) throws IOException {
        log = UnifiedLog.create(
            folder,
            config(0, Integer.MAX_VALUE),
            0,
            0,
            // Never started, so that nothing happens but what is commanded: no producer expires, no file goes later.
            new KafkaScheduler(1),
            new BrokerTopicStats(),
            Time.SYSTEM,
            Integer.MAX_VALUE,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
            Integer.MAX_VALUE,
            new LogDirFailureChannel(1),
            true,
            Optional.empty());
    }

    private void append(DataInputStream in) throws IOException {
        byte[] batches = new byte[in.readInt()];
        in.readFully(batches);
        log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(batches)), EPOCH);
        log.updateHighWatermark(log.logEndOffset());
    }

    private void clean(DataInputStream in, DataOutputStream out) throws Exception {
        long firstDirty = in.readLong();
        long uncleanable = in.readLong();
        long now = in.readLong();
        // Segments end where it was commanded, so the size that groups are made by is set for the pass alone.
        log.updateConfig(config(in.readLong(), in.readInt()));
        Cleaner cleaner = new Cleaner(
            0,
            new SkimpyOffsetMap(in.readInt()),
            64 * 1024,
            64 * 1024,
            in.readDouble(),
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "oracle", "bytes", Time.SYSTEM),
            Time.SYSTEM,
            partition -> { });
        LogToClean whole = new LogToClean(log, firstDirty, uncleanable, true);
        out.writeLong(cleaner.doClean(whole, now).getKey());
        out.writeLong(whole.firstUncleanableOffset());
        log.updateConfig(config(0, Integer.MAX_VALUE));
        List<LogSegment> segments = log.logSegments();
        out.writeInt(segments.size());
        for (LogSegment segment : segments) {
            out.writeLong(segment.baseOffset());
            write(out, segment.log().file());
            write(out, segment.txnIndex().file());
        }
    }

    private static void write(DataOutputStream out, File file) throws IOException {
        byte[] data = file.exists() ? Files.readAllBytes(file.toPath()) : new byte[0];
        out.writeInt(data.length);
        out.write(data);
    }

    private static LogConfig config(long deleteRetentionMs, int segmentBytes) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("cleanup.policy", "compact");
        settings.put("delete.retention.ms", deleteRetentionMs);
        settings.put("internal.segment.bytes", segmentBytes);
        settings.put("segment.index.bytes", BATCH_BYTES);
        settings.put("segment.ms", Long.MAX_VALUE);
        settings.put("max.message.bytes", BATCH_BYTES);
        return new LogConfig(settings);
    }
}
