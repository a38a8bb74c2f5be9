/* A system that fails: loaded before the C library (LD_PRELOAD), it lets calls of the program fail.
 *
 *   TGNN_FAULT="CALL ERRNO FIRST LAST"  the calls number FIRST to LAST of a kind fail: write (to files), fsync, rename,
 *                                       unlink, mmap (of files) or thread
 *   TGNN_CALLS=FILE                     every call of a kind is a line of FILE, with the paths that it is about
 *   TGNN_MACHINE=KIB                    the machine has so much memory: the system tells what is left of it, and kills
 *                                       the program when it takes more without the pages of files
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the function of the C library that has this name. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long made[6];
static const char *const KINDS[6] = {"write", "fsync", "rename", "unlink", "mmap", "thread"};

static int opened(const char *path, int flags) {
    return NEXT(open)(path, flags, 0600);
}

static void told(const char *kind, const char *first, const char *second) {
    const char *calls = getenv("TGNN_CALLS");
    if (!calls) return;
    char line[9000];
    int n = snprintf(line, sizeof line, "%s %s %s\n", kind, first, second);
    int fd = opened(calls, O_WRONLY | O_APPEND | O_CREAT);
    if (fd >= 0 && NEXT(write)(fd, line, n) != n) abort();
    close(fd);
}

/* Counts a call of a kind. Returns whether it must fail, with errno set. */
static int fails(int kind) {
    const char *fault = getenv("TGNN_FAULT");
    char name[16];
    int code;
    long first, last, now = atomic_fetch_add(&made[kind], 1) + 1;
    if (!fault || sscanf(fault, "%15s %d %ld %ld", name, &code, &first, &last) != 4) return 0;
    if (strcmp(name, KINDS[kind]) || now < first || now > last) return 0;
    errno = code;
    return 1;
}

static const char *path_of(int fd, char path[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    struct stat of;
    if (fstat(fd, &of) == 0 && S_ISREG(of.st_mode)) {
        char path[4096];
        told("write", path_of(fd, path), "");
        if (fails(0)) return -1;
    }
    return NEXT(write)(fd, bytes, n);
}

int fsync(int fd) {
    char path[4096];
    told("fsync", path_of(fd, path), "");
    return fails(1) ? -1 : NEXT(fsync)(fd);
}

int rename(const char *from, const char *to) {
    told("rename", from, to);
    return fails(2) ? -1 : NEXT(rename)(from, to);
}

int unlink(const char *path) {
    told("unlink", path, "");
    return fails(3) ? -1 : NEXT(unlink)(path);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    return fd >= 0 && fails(4) ? MAP_FAILED : NEXT(mmap)(at, n, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
    return fd >= 0 && fails(4) ? MAP_FAILED : NEXT(mmap64)(at, n, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    told("thread", "", "");
    return fails(5) ? errno : NEXT(pthread_create)(thread, how, run, with);
}

/* Returns the memory that the program has taken, in KiB. */
static long taken(void) {
    char text[8192], *at;
    int fd = opened("/proc/self/status", O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = 0;
    at = strstr(text, "RssAnon:");
    return at ? atol(at + 8) : 0;
}

static void *killing(void *machine) {
    for (;; usleep(1000)) {
        if (taken() > (long)machine) kill(getpid(), SIGKILL);
    }
    return 0;
}

__attribute__((constructor)) static void begins(void) {
    const char *machine = getenv("TGNN_MACHINE");
    pthread_t thread;
    if (machine) NEXT(pthread_create)(&thread, 0, killing, (void *)atol(machine));
}

/* Returns a file with what the machine has left. */
static int left(void) {
    char text[64];
    long kib = atol(getenv("TGNN_MACHINE")) - taken();
    int fd = memfd_create("meminfo", 0), n = snprintf(text, sizeof text, "MemAvailable: %ld kB\n", kib < 0 ? 0 : kib);
    if (NEXT(write)(fd, text, n) != n) abort();
    lseek(fd, 0, SEEK_SET);
    return fd;
}

#define OPENS(name)                                                                        \
    int name(const char *path, int flags, ...) {                                           \
        va_list more;                                                                      \
        va_start(more, flags);                                                             \
        mode_t mode = va_arg(more, int);                                                   \
        va_end(more);                                                                      \
        if (getenv("TGNN_MACHINE") && !strcmp(path, "/proc/meminfo")) return left();       \
        return NEXT(name)(path, flags, mode);                                              \
    }
OPENS(open)
OPENS(open64)
