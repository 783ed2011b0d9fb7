/* LD_PRELOAD: CLOCK_REALTIME with an offset and a drift since an instant; time namespaces have other clocks only. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long offset_ns, drift_ppm, epoch_ns;

__attribute__((constructor)) static void read_settings(void) {
    offset_ns = atoll(getenv("SHIFTED_OFFSET_NS"));
    drift_ppm = atoll(getenv("SHIFTED_DRIFT_PPM"));
    epoch_ns = atoll(getenv("SHIFTED_EPOCH_NS"));
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int status = syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && clock == CLOCK_REALTIME) {
        long long now_ns = time->tv_sec * 1000000000LL + time->tv_nsec;
        now_ns += offset_ns + (now_ns - epoch_ns) * drift_ppm / 1000000;
        time->tv_sec = now_ns / 1000000000LL;
        time->tv_nsec = now_ns % 1000000000LL;
    }
    return status;
}
