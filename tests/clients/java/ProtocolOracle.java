import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Decodes messages with Kafka's own classes and encodes them again.
 *
 * Reads frames of (name as UTF, version int16, size int32, bytes) until its input ends. Answers each with
 * (size int32, bytes): the bytes written again; or with -1 and the exception as UTF.
 */
public class ProtocolOracle {
    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                break;
            }
            short version = in.readShort();
            byte[] data = new byte[in.readInt()];
            in.readFully(data);
            try {
                Message message = (Message) Class.forName("org.apache.kafka.common.message." + name)
                    .getDeclaredConstructor().newInstance();
                byte[] again = reencode(message, version, data);
                out.writeInt(again.length);
                out.write(again);
            } catch (Exception | LinkageError error) {
                out.writeInt(-1);
                out.writeUTF(error.toString());
            }
        }
        out.flush();
    }

    private static byte[] reencode(Message message, short version, byte[] data) {
        ByteBuffer input = ByteBuffer.wrap(data);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            throw new IllegalStateException(input.remaining() + " bytes were not read");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return output.array();
    }
}
