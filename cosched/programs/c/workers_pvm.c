/* Master and workers with PVM: workers_pvm [-a HOST] [LIMIT], started once in a job.

   The master adds the job's nodes that are not yet in the virtual machine (pvm_addhosts), and HOST too, where one is named;
   it spawns a worker for each task of the job but its own, and deals out pieces of 1 … LIMIT: how many primes are in there? A worker
   tries divisors. Verified by a sieve over the whole, which the master makes for itself, and by every piece having come
   back once. Status 0 verified, 1 wrong, 2 bad arguments, 3 not all hosts or tasks could be had. */
#include "pvm_job.h"

enum { PIECE = 20, ANSWER = 21, PIECES = 64 };

static int primes_between(int from, int to) {
    int count = 0;

    for (int n = from < 2 ? 2 : from; n < to; n++) {
        int d = 2;

        while (d * d <= n && n % d)
            d++;
        count += d * d > n;
    }
    return count;
}

static int primes_by_sieve(int limit) {
    char *composite = calloc((size_t)limit + 1, 1);
    int count = 0;

    for (int n = 2; composite && n <= limit; n++)
        if (!composite[n]) {
            count++;
            for (long long m = (long long)n * n; m <= limit; m += n)
                composite[m] = 1;
        }
    free(composite);
    return count;
}

static int work(int parent) {
    int piece[3], answer[2];

    for (;;) {
        pvm_checked(pvm_recv(parent, PIECE), "pvm_recv");
        pvm_upkint(piece, 3, 1);
        if (piece[0] < 0)
            break;
        answer[0] = piece[0];
        answer[1] = primes_between(piece[1], piece[2]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(answer, 2, 1);
        pvm_checked(pvm_send(parent, ANSWER), "pvm_send");
    }
    pvm_exit();
    return 0;
}

/* Add a host to the virtual machine, unless it is there; whether it is in there now. */
static int added(const char *name) {
    struct pvmhostinfo *hosts;
    int info = 0, count, format;
    char *names[1] = {(char *)name};

    pvm_checked(pvm_config(&count, &format, &hosts), "pvm_config");
    for (int i = 0; i < count; i++)
        if (strcmp(hosts[i].hi_name, name) == 0)
            return 1;
    if (pvm_addhosts(names, 1, &info) == 1)
        return 1;
    printf("%s is not added: %d\n", name, info);
    return 0;
}

static int add_nodes(const char *nodes) {
    char *rest, *list = strdup(nodes), *name;
    int all = 1;

    for (name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        all &= added(name);
    free(list);
    return all;
}

static void deal(int tid, int number, int limit) {
    int piece[3] = {-1, 0, 0};

    if (number < PIECES) {
        piece[0] = number;
        piece[1] = (int)((long long)(limit + 1) * number / PIECES);
        piece[2] = (int)((long long)(limit + 1) * (number + 1) / PIECES);
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(piece, 3, 1);
    pvm_checked(pvm_send(tid, PIECE), "pvm_send");
}

int main(int argc, char **argv) {
    int workers, next = 0, total = 0, limit, returned[PIECES] = {0}, once = 1, wanted, *tids, parent;
    const char *more = NULL, *nodes = getenv("COSCHED_NODES");
    char *end = "";

    pvm_checked(pvm_mytid(), "pvm_mytid");
    parent = pvm_parent();
    if (parent != PvmNoParent)
        return work(parent);
    if (argc > 2 && strcmp(argv[1], "-a") == 0) {
        more = argv[2];
        argv += 2;
        argc -= 2;
    }
    limit = argc > 1 ? (int)strtol(argv[1], &end, 10) : 200000;
    if (*end || limit < 100 || limit > 100000000) {
        fprintf(stderr, "workers_pvm: LIMIT is a number from 100 on; usage: workers_pvm [-a HOST] [LIMIT]\n");
        pvm_exit();
        return 2;
    }
    if (more)
        added(more);
    /* the first of the tasks is the master's own: while workers compute it only waits */
    if (!nodes || !add_nodes(nodes) || !(tids = pvm_job_spawn(argv[0], &workers)) || workers < 2) {
        fprintf(stderr, "workers_pvm: no worker for each task of the job\n");
        pvm_exit();
        return 3;
    }
    for (int i = 1; i < workers; i++)
        deal(tids[i], next++, limit);
    for (int i = 0; i < PIECES; i++) {
        int from, answer[2];

        from = pvm_checked(pvm_recv(-1, ANSWER), "pvm_recv");
        pvm_bufinfo(from, NULL, NULL, &from);
        pvm_upkint(answer, 2, 1);
        if (answer[0] >= 0 && answer[0] < PIECES)
            returned[answer[0]]++;
        total += answer[1];
        deal(from, next++, limit);
    }
    for (int i = 0; i < PIECES; i++)
        once &= returned[i] == 1;
    wanted = primes_by_sieve(limit);
    printf("{\"program\": \"workers_pvm\", \"workers\": %d, \"limit\": %d, \"primes\": %d, \"wanted\": %d, \"verified\": %s}\n",
           workers - 1, limit, total, wanted, once && total == wanted ? "true" : "false");
    pvm_exit();
    return !(once && total == wanted);
}
