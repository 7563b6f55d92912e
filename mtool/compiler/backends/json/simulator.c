/* Runs a device's simulator on this computer. POSIX. */
#define _POSIX_C_SOURCE 200809L

#include "@NAME@_simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 512

static int32_t failed(int32_t status, const char *what, const char *name)
{
    fprintf(stderr, "the simulator of @NAME@: %s %s\n", what, name);
    return status;
}

static void put_path(char *path, const char *folder, const char *name, int32_t number)
{
    if (number < 0)
        snprintf(path, PATH_BYTES, "%s/%s.bin", folder, name);
    else
        snprintf(path, PATH_BYTES, "%s/%s%d.bin", folder, name, (int)number);
}

static int32_t write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return failed(1, "can't write", path);
    const size_t written = fwrite(data, 1, bytes, file);
    if (fclose(file) != 0 || written != bytes)
        return failed(1, "can't write", path);
    return 0;
}

static int32_t read_file(const char *path, void *data, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return failed(3, "it has not written", path);
    const size_t got = fread(data, 1, bytes, file);
    const int more = fgetc(file);
    fclose(file);
    return got == bytes && more == EOF ? 0 : failed(3, "of another size than the region's result is", path);
}

/* In a separate process; its output goes to standard error, since standard output is the host's link. */
static int32_t run(const struct @NAME@_job *job, const char *folder)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        return failed(2, "can't start", job->command[0]);
    if (child == 0) {
        union {
            const char *const *plain;
            char *const *argv;
        } command;
        command.plain = job->command; /* execvp does not change them */
        if (chdir(folder) != 0 || dup2(2, 1) < 0 || freopen("/dev/null", "r", stdin) == NULL)
            _exit(126);
        alarm(job->limit_s);
        execvp(command.argv[0], command.argv);
        fprintf(stderr, "can't run %s\n", job->command[0]);
        _exit(127);
    }
    int state = 0;
    if (waitpid(child, &state, 0) != child)
        return failed(2, "is lost:", job->command[0]);
    if (WIFSIGNALED(state) && WTERMSIG(state) == 14)
        return failed(2, "took too long:", job->command[0]);
    return WIFEXITED(state) && WEXITSTATUS(state) == 0 ? 0 : failed(2, "failed:", job->command[0]);
}

static int32_t exchange(const struct @NAME@_job *job, const char *folder)
{
    char path[PATH_BYTES];
    put_path(path, folder, "model", -1);
    int32_t status = write_file(path, job->binary, job->binary_bytes);
    for (int32_t i = 0; status == 0 && i < job->input_count; ++i) {
        put_path(path, folder, "input", i);
        status = write_file(path, job->inputs[i], job->input_bytes[i]);
    }
    if (status == 0)
        status = run(job, folder);
    for (int32_t i = 0; status == 0 && i < job->output_count; ++i) {
        put_path(path, folder, "output", i);
        status = read_file(path, job->outputs[i], job->output_bytes[i]);
    }
    return status;
}

static void clear(const struct @NAME@_job *job, const char *folder)
{
    char path[PATH_BYTES];
    put_path(path, folder, "model", -1);
    remove(path);
    for (int32_t i = 0; i < job->input_count; ++i) {
        put_path(path, folder, "input", i);
        remove(path);
    }
    for (int32_t i = 0; i < job->output_count; ++i) {
        put_path(path, folder, "output", i);
        remove(path);
    }
    rmdir(folder);
}

int32_t @NAME@_simulate(const struct @NAME@_job *job)
{
    const char *top = getenv("TMPDIR");
    char folder[PATH_BYTES / 2];
    const int length = snprintf(folder, sizeof folder, "%s/mtool-XXXXXX", top != NULL && *top != 0 ? top : "/tmp");
    if (length < 0 || (size_t)length >= sizeof folder || mkdtemp(folder) == NULL)
        return failed(1, "can't make a folder for", "its files");
    const int32_t status = exchange(job, folder);
    clear(job, folder);
    return status;
}
