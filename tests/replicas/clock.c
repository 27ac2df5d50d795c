/* Sets the clock of a process off. Loaded before the C library (LD_PRELOAD). How much time passes
 * (CLOCK_MONOTONIC) stays as it is.
 *
 * CLOCK_OFFSET  by how many seconds
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
    const char *seconds = getenv("CLOCK_OFFSET");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += offset();
    return failed;
}

time_t time(time_t *now) {
    struct timespec is;
    if (clock_gettime(CLOCK_REALTIME, &is)) return -1;
    if (now) *now = is.tv_sec;
    return is.tv_sec;
}
