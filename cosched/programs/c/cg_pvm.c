/* CG with PVM: cg_pvm [ROWS [PROBLEMS]], started once in a job; it spawns itself, a task for each of the job's on its
   node. Status 0 verified, 1 wrong, 2 bad arguments, 3 not all tasks could be started. */
#include "cg.h"
#include "pvm_job.h"

enum { PART = 10, VALUE = 11, SETUP = 12 };

static int rank, ranks, *tids;

static void to_others(int tag) {
    for (int i = 1; i < ranks; i++)  /* each begins with its neighbour, so that not all send to one */
        pvm_checked(pvm_send(tids[(rank + i) % ranks], tag), "pvm_send");
}

static void cg_gather(const double *part, double *whole, const int *begins) {
    memcpy(whole + begins[rank], part, sizeof *part * (size_t)(begins[rank + 1] - begins[rank]));
    pvm_initsend(PvmDataRaw);
    pvm_checked(pvm_pkdouble((double *)part, begins[rank + 1] - begins[rank], 1), "pvm_pkdouble");
    to_others(PART);
    for (int i = 0; i < ranks; i++)
        if (i != rank) {
            pvm_checked(pvm_recv(tids[i], PART), "pvm_recv");
            pvm_checked(pvm_upkdouble(whole + begins[i], begins[i + 1] - begins[i], 1), "pvm_upkdouble");
        }
}

static double cg_sum(double value) {
    double sum = 0, theirs;

    pvm_initsend(PvmDataRaw);
    pvm_pkdouble(&value, 1, 1);
    to_others(VALUE);
    for (int i = 0; i < ranks; i++) {
        theirs = value;
        if (i != rank) {
            pvm_checked(pvm_recv(tids[i], VALUE), "pvm_recv");
            pvm_checked(pvm_upkdouble(&theirs, 1, 1), "pvm_upkdouble");
        }
        sum += theirs;
    }
    return sum;
}

int main(int argc, char **argv) {
    int parent, setup[2], error_status;
    char hosts[4096] = "";
    struct cg cg;
    double error;

    pvm_checked(pvm_mytid(), "pvm_mytid");
    parent = pvm_parent();
    if (parent == PvmNoParent) {
        setup[0] = argc > 1 ? cg_number(argv[1], 2100) : 20000;
        setup[1] = argc > 2 ? cg_number(argv[2], 1) : 2;
        tids = pvm_job_spawn(argv[0], &ranks);
        if (!tids || !cg_expected(ranks)) {
            pvm_exit();
            return 3;
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&ranks, 1, 1);
        pvm_pkint(tids, ranks, 1);
        pvm_pkint(setup, 2, 1);
        to_others(SETUP);
    } else {
        pvm_checked(pvm_recv(parent, SETUP), "pvm_recv");
        pvm_upkint(&ranks, 1, 1);
        tids = calloc((size_t)ranks, sizeof *tids);
        pvm_upkint(tids, ranks, 1);
        pvm_upkint(setup, 2, 1);
        while (tids[rank] != pvm_mytid())
            rank++;
    }
    cg_init(&cg, setup[0], rank, ranks);
    error = cg_run(&cg, setup[1]);
    for (int i = 0; i < ranks; i++)
        sprintf(hosts + strlen(hosts), "%s\"%.60s\"", i ? ", " : "", pvm_job_host(tids[i]));
    error_status = rank == 0 ? cg_tell("cg_pvm", &cg, hosts, setup[1], error) : !(error <= CG_ALLOWED);
    pvm_exit();
    return error_status;
}
