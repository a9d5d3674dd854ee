/* Ethernet frames by packet sockets between two processes, as bare as they can be: a ring that the kernel fills (TPACKET_V2), and frames that leave past the queueing
 * discipline. Nothing is sent again: a receiver says after CREDIT frames that it took them, and a sender is never further ahead than the ring is long. */
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum { TYPE = 0x88B6, FRAME_HEAD = 20, CREDIT = 128, AHEAD = 512, RING = 16 << 20, HELLO = 1, DATA = 2, TAKEN = 3 };

static unsigned char frame[1 << 16];
static char *ring;
static size_t slot_bytes, slots, at_slot, frame_room;
static long ahead, untold;

static void send_frame(int kind, const char *bytes, size_t len)
{
    uint16_t words[3] = {htons(TYPE), (uint16_t)kind, 0};
    uint16_t length = (uint16_t)len;
    words[2] = length;
    memcpy(frame + 12, words, sizeof words);
    if (len)
        memcpy(frame + FRAME_HEAD, bytes, len);
    while (send(sock, frame, FRAME_HEAD + len, MSG_DONTWAIT) < 0)
        if (errno != EAGAIN && errno != ENOBUFS)
            fail("send a frame");
}

/* Takes a frame, if one is there: its kind, and up to `room` bytes of it. */
static int take_frame(char *place, size_t room, size_t *len)
{
    struct tpacket2_hdr *head = (struct tpacket2_hdr *)(ring + at_slot * slot_bytes);
    if (!(__atomic_load_n(&head->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
        return 0;
    const char *bytes = (char *)head + head->tp_mac;
    uint16_t kind, length;
    memcpy(&kind, bytes + 14, 2), memcpy(&length, bytes + 16, 2);
    *len = length < room ? length : room;
    if (kind == DATA && *len)
        memcpy(place, bytes + FRAME_HEAD, *len);
    __atomic_store_n(&head->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    at_slot = (at_slot + 1) % slots;
    return kind;
}

static void put_frames(const char *bytes, size_t left)
{
    size_t none;
    while (left > 0) {
        size_t len = left < frame_room ? left : frame_room;
        while (ahead >= AHEAD)
            if (take_frame(NULL, 0, &none) == TAKEN)
                ahead -= CREDIT;
        send_frame(DATA, bytes, len);
        ahead++, bytes += len, left -= len;
    }
}

static void get_frames(char *place, size_t left)
{
    while (left > 0) {
        size_t len = 0;
        int kind = take_frame(place, left, &len);
        if (kind == TAKEN)
            ahead -= CREDIT;
        if (kind != DATA)
            continue;
        place += len, left -= len;
        if (++untold == CREDIT) {
            untold = 0;
            send_frame(TAKEN, NULL, 0);
        }
    }
}

static void open_frames(char *where)
{
    char *other = strchr(where, '/');
    *other++ = 0;
    struct ifreq request = {0};
    int version = TPACKET_V2, one = 1;
    sock = socket(AF_PACKET, SOCK_RAW, 0);
    if (sock < 0)
        fail("packet socket");
    strncpy(request.ifr_name, where, sizeof request.ifr_name - 1);
    if (ioctl(sock, SIOCGIFMTU, &request) != 0)
        fail(where);
    frame_room = (size_t)request.ifr_mtu - (FRAME_HEAD - 14);
    if (frame_room > 9000 - (FRAME_HEAD - 14))
        frame_room = 9000 - (FRAME_HEAD - 14);
    if (ioctl(sock, SIOCGIFHWADDR, &request) != 0)
        fail(where);
    memcpy(frame + 6, request.ifr_hwaddr.sa_data, 6);
    for (int i = 0; i < 6; i++)
        frame[i] = (unsigned char)strtol(other + 3 * i, NULL, 16);
    for (slot_bytes = 2048; slot_bytes < frame_room + 128;)
        slot_bytes *= 2;
    slots = RING / slot_bytes;
    size_t block = slot_bytes > 1 << 16 ? slot_bytes : 1 << 16;
    struct tpacket_req ask = {(unsigned)block, (unsigned)(RING / block), (unsigned)slot_bytes, (unsigned)slots};
    if (setsockopt(sock, SOL_PACKET, PACKET_VERSION, &version, sizeof version) || setsockopt(sock, SOL_PACKET, PACKET_RX_RING, &ask, sizeof ask))
        fail("ring");
    setsockopt(sock, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, sock, 0);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(TYPE), .sll_ifindex = (int)if_nametoindex(where)};
    if (ring == MAP_FAILED || bind(sock, (struct sockaddr *)&to, sizeof to) != 0)
        fail("bind");
    /* Rank 1 calls until it hears rank 0, which has sent nothing else before. */
    size_t none;
    for (int i = 0;; i++) {
        if (rank == 1)
            send_frame(HELLO, NULL, 0);
        usleep(5000);
        if (take_frame(NULL, 0, &none) == HELLO)
            break;
        if (i == 2000)
            fail("nobody answers in frames");
    }
    if (rank == 0)
        send_frame(HELLO, NULL, 0);
}
