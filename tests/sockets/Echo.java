import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Random;

/** An echo server with a selector, and clients that compare what comes back. Closing a channel wakes a thread that reads it. */
public class Echo {
    static final int CLIENTS = 20;

    static void serve(ServerSocketChannel listener, Selector selector) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        for (int closed = 0; closed < CLIENTS;) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext();) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    if (accepted != null) {
                        accepted.configureBlocking(false);
                        accepted.register(selector, SelectionKey.OP_READ);
                    }
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                buffer.clear();
                if (channel.read(buffer) < 0) {
                    channel.close();
                    closed++;
                }
                buffer.flip();
                while (buffer.hasRemaining() && channel.isOpen()) {
                    channel.write(buffer);
                }
            }
        }
    }

    static boolean closeWakes(SocketChannel channel) throws Exception {
        boolean[] woken = new boolean[1];
        Thread reader = new Thread(() -> {
            try {
                channel.read(ByteBuffer.allocate(10));
            } catch (AsynchronousCloseException expected) {
                woken[0] = true;
            } catch (Exception other) {
                other.printStackTrace();
            }
        });
        reader.start();
        Thread.sleep(300);
        channel.close();
        reader.join();
        return woken[0];
    }

    public static void main(String[] words) throws Exception {
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", 0));
        listener.configureBlocking(false);
        Selector selector = Selector.open();
        listener.register(selector, SelectionKey.OP_ACCEPT);
        int port = ((InetSocketAddress) listener.getLocalAddress()).getPort();
        Thread server = new Thread(() -> {
            try {
                serve(listener, selector);
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        server.start();
        Random random = new Random(1);
        for (int at = 0; at < CLIENTS; at++) {
            SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
            byte[] data = new byte[50000];
            random.nextBytes(data);
            channel.write(ByteBuffer.wrap(data));
            ByteBuffer back = ByteBuffer.allocate(data.length);
            while (back.hasRemaining()) {
                if (channel.read(back) < 0) {
                    throw new Exception("the end before all bytes");
                }
            }
            if (!Arrays.equals(data, back.array())) {
                throw new Exception("other bytes");
            }
            if (at == CLIENTS / 2 && !closeWakes(channel)) {
                throw new Exception("closing did not wake the reader");
            }
            channel.close();
        }
        server.join();
        System.out.println("all is well");
    }
}
