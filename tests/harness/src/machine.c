/*
 * The machine under a process of the fault campaign, loaded before libc: a disk that is slow or full, a wall clock that
 * somebody has moved. The file that TOLLGATE_FAULT_MACHINE names is mapped; the campaign writes it, and it holds as
 * native 64-bit integers:
 *
 *   0  how long fsync and fdatasync take on top, in microseconds
 *   1  not 0: the disk is full. Regular files do not grow, but for the log on standard error; what they hold already can be
 *      written again
 *   2  added to the wall clock, in microseconds; the monotonic clock is left alone
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SLOW_US, FULL, OFFSET_US, FIELDS };

static volatile const int64_t *fields;

__attribute__((constructor)) static void map_fields(void)
{
    const char *path = getenv("TOLLGATE_FAULT_MACHINE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, FIELDS * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        fields = at;
    close(fd);
}

static int64_t field(int which)
{
    return fields ? fields[which] : 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void be_slow(void)
{
    int64_t us = field(SLOW_US);
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Whether a file would grow beyond its end, on a disk that is full. A negative offset means where it stands. */
static int has_no_room(int fd, off_t offset, size_t bytes)
{
    struct stat status;
    if (fd == STDERR_FILENO || !field(FULL) || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    if (offset < 0)
        offset = fcntl(fd, F_GETFL) & O_APPEND ? status.st_size : lseek(fd, 0, SEEK_CUR);
    return offset + (off_t)bytes > status.st_size;
}

static size_t bytes_of(const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

#define NO_ROOM(fd, offset, bytes) \
    if (has_no_room(fd, offset, bytes)) { \
        errno = ENOSPC; \
        return -1; \
    }

int fsync(int fd)
{
    REAL(fsync);
    be_slow();
    return real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    be_slow();
    return real(fd);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    REAL(write);
    NO_ROOM(fd, -1, count);
    return real(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    REAL(pwrite);
    NO_ROOM(fd, offset, count);
    return real(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    REAL(pwrite64);
    NO_ROOM(fd, offset, count);
    return real(fd, bytes, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    REAL(pwritev);
    NO_ROOM(fd, offset, bytes_of(parts, count));
    return real(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    REAL(pwritev64);
    NO_ROOM(fd, offset, bytes_of(parts, count));
    return real(fd, parts, count, offset);
}

int ftruncate(int fd, off_t length)
{
    REAL(ftruncate);
    NO_ROOM(fd, 0, (size_t)length);
    return real(fd, length);
}

int ftruncate64(int fd, off64_t length)
{
    REAL(ftruncate64);
    NO_ROOM(fd, 0, (size_t)length);
    return real(fd, length);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    REAL(posix_fallocate);
    return has_no_room(fd, offset, (size_t)length) ? ENOSPC : real(fd, offset, length);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    REAL(clock_gettime);
    int status = real(clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t offset_us = field(OFFSET_US);
        time->tv_sec += offset_us / 1000000;
        time->tv_nsec += offset_us % 1000000 * 1000;
        if (time->tv_nsec < 0) {
            time->tv_sec -= 1;
            time->tv_nsec += 1000000000;
        } else if (time->tv_nsec >= 1000000000) {
            time->tv_sec += 1;
            time->tv_nsec -= 1000000000;
        }
    }
    return status;
}

/* The clock of PostgreSQL and SQLite. */
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return (time_t)-1;
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
