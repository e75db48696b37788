/* Wakes on a schedule and says how late it was: `late PERIOD_US COUNT open|closed`, one line of nanoseconds each.

   open: the schedule stands, whatever happens, and every moment counts (no coordinated omission). closed: the usual way
   of measuring; sleep for a period, see how much too long it was, again. An independent check of the probe: no Python. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long long period = atoll(argv[1]) * 1000, count = atoll(argv[2]), due = now();
    int open = argc > 3 && strcmp(argv[3], "open") == 0;
    long long *late = calloc(count, sizeof *late);
    printf("ready\n");
    fflush(stdout);
    for (long long i = 0; i < count; i++) {
        due = (open ? due : now()) + period;
        struct timespec t = {due / 1000000000LL, due % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
            ;
        late[i] = now() - due;
    }
    for (long long i = 0; i < count; i++)
        printf("%lld\n", late[i]);
    return 0;
}
