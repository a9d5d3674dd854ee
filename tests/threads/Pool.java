import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/** A pool of 200 threads that take locks and monitors, sleep, and make garbage. */
public class Pool {
    static final int THREADS = 200;
    static final ReentrantLock lock = new ReentrantLock();
    static final Object monitor = new Object();
    static final AtomicLong sum = new AtomicLong();
    static long locked, entered;

    static void work(int number, CountDownLatch all) throws Exception {
        all.countDown();
        all.await();
        for (int round = 0; round < 30; round++) {
            byte[][] garbage = new byte[20][];
            for (int i = 0; i < garbage.length; i++) garbage[i] = new byte[2000];
            sum.addAndGet(number * round);
            lock.lock();
            try {
                locked++;
            } finally {
                lock.unlock();
            }
            synchronized (monitor) {
                entered += garbage.length;
            }
            if (round % 10 == 0) Thread.sleep(1);
        }
    }

    public static void main(String[] words) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        CountDownLatch all = new CountDownLatch(THREADS);
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            pool.submit(() -> {
                work(number, all);
                return null;
            });
        }
        pool.shutdown();
        boolean ended = pool.awaitTermination(300, TimeUnit.SECONDS);
        System.gc();
        System.out.println(ended + " " + sum.get() + " " + locked + " " + entered);
    }
}
