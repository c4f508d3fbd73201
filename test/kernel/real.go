// Package kernel runs the script of package test/kernel/script, which writes cgroup files, on real kernels. A test runs
// the script on the kernel of this host, in a cgroup of the test. The program guest runs the script on the kernels of
// the virtual machines of test/vm.
package kernel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/test/kernel/script"
)

// Times for which the functions wait for asynchronous work of the kernel. They are long, because an emulated kernel is
// slow.
const (
	// taskEndTimeout is how long AwaitEnd waits until the kernel has removed a dead task.
	taskEndTimeout = 10 * time.Second
	// conditionTimeout is how long SetOnline waits until the root cpuset shows the online CPUs.
	conditionTimeout = 2 * time.Second
	// extraWait is how long SetOnline waits for the cpusets below the root, after the root cpuset is up to date.
	extraWait = 300 * time.Millisecond
)

// Real is the kernel of this machine.
type Real struct {
	*cgroup.Real
	Dir string // the directory in which the cgroup hierarchies are mounted
	// TaskCommand is the command line of a program that runs Task.
	TaskCommand []string

	tasks map[int]*task // by process id
}

// task is a process that runs Task.
type task struct {
	cmd   *exec.Cmd
	in    io.WriteCloser // receives the numbers of bytes
	reply *bufio.Reader  // the lines that the process prints
}

// controllers returns the directories of the mounted hierarchies below Dir: one for each controller in version 1, and
// only "" in version 2.
func (r *Real) controllers() []string {
	if _, err := os.Stat(filepath.Join(r.Dir, "cgroup.controllers")); err == nil {
		return []string{""}
	}
	var out []string
	for _, c := range []string{"cpu", "cpuset", "memory", "blkio", "hugetlb", "pids"} {
		if _, err := os.Stat(filepath.Join(r.Dir, c, "cgroup.procs")); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// Mkdir makes a cgroup in every hierarchy.
func (r *Real) Mkdir(dir string) error {
	for _, c := range r.controllers() {
		if err := os.Mkdir(filepath.Join(r.Dir, c, dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Rmdir removes a cgroup from every hierarchy. If a hierarchy refuses that, Rmdir makes the cgroup again in the others.
func (r *Real) Rmdir(dir string) error {
	var done []string
	for _, c := range r.controllers() {
		if err := syscall.Rmdir(filepath.Join(r.Dir, c, dir)); err != nil {
			for _, d := range done {
				err = errors.Join(err, os.Mkdir(d, 0o755))
			}
			return err
		}
		done = append(done, filepath.Join(r.Dir, c, dir))
	}
	return nil
}

// Spawn starts a task.
func (r *Real) Spawn() (int, error) {
	cmd := exec.CommandContext(context.Background(), r.TaskCommand[0], r.TaskCommand[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	t := &task{cmd, in, bufio.NewReader(out)}
	if r.tasks == nil {
		r.tasks = map[int]*task{}
	}
	r.tasks[cmd.Process.Pid] = t
	_, err = t.reply.ReadString('\n')
	return cmd.Process.Pid, err
}

// Grow makes a task use memory.
func (r *Real) Grow(pid int, bytes int64) error {
	t := r.tasks[pid]
	if t == nil {
		return syscall.ESRCH
	}
	if _, err := fmt.Fprintln(t.in, bytes); err != nil {
		return err
	}
	_, err := t.reply.ReadString('\n')
	return err
}

// Kill ends a task.
func (r *Real) Kill(pid int) error {
	t := r.tasks[pid]
	if t == nil {
		return nil // AwaitEnd has already seen the end of the task
	}
	delete(r.tasks, pid)
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait()
	return nil
}

// AwaitEnd waits until a task has ended.
func (r *Real) AwaitEnd(pid int) error {
	t := r.tasks[pid]
	if t == nil {
		return syscall.ESRCH
	}
	ended := make(chan struct{})
	go func() {
		_ = t.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		delete(r.tasks, pid)
		return nil
	case <-time.After(taskEndTimeout):
		return syscall.ETIMEDOUT
	}
}

// Task is the loop of a task. It first prints a line, to show that it runs. Each line of the input is a number of
// bytes. Task allocates so much memory in addition, and prints a line when the memory is in use.
func Task(in io.Reader, out io.Writer) {
	var held [][]byte
	fmt.Fprintln(out, "here")
	for s := bufio.NewScanner(in); s.Scan(); {
		n, _ := strconv.Atoi(s.Text())
		held = append(held, bytes.Repeat([]byte{1}, n))
		fmt.Fprintln(out, len(held))
	}
}

// SetOnline takes a CPU offline or online, and waits until the cpusets show the change.
func (r *Real) SetOnline(cpu int, online bool) error {
	text := "0"
	if online {
		text = "1"
	}
	if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(text), 0); err != nil {
		return err
	}
	want, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return err
	}
	root := "cpuset.cpus.effective"
	if !slices.Equal(r.controllers(), []string{""}) {
		root = "cpuset/cpuset.cpus"
	}
	// The kernel updates the root cpuset first, and then the other cpusets, without a pause. If a partition owns CPUs,
	// the root cpuset does not show these CPUs. In this case wait ends only after conditionTimeout.
	wait(func() bool {
		got, err := os.ReadFile(filepath.Join(r.Dir, root))
		return err == nil && bytes.Equal(got, want)
	})
	return nil
}

// wait waits until done returns true, but at most for conditionTimeout. Then it waits for extraWait, in which the
// kernel finishes its work. A timeout is no error: the script records whatever the kernel shows.
func wait(done func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(conditionTimeout); !done() && time.Now().Before(end); {
		<-tick.C
	}
	<-time.After(extraWait)
}

// Record runs the script on this machine's kernel, and returns the kernel's answers.
func Record(r *Real) (script.Recording, error) {
	v, err := cgroup.Detect(r)
	if err != nil {
		return script.Recording{}, err
	}
	text := func(file string) string {
		b, _ := os.ReadFile(file)
		return strings.TrimSpace(string(b))
	}
	rec := script.Recording{
		Kernel: text("/proc/sys/kernel/osrelease"), Version: v.String(),
		CPUs: text("/sys/devices/system/cpu/online"), Mems: text("/sys/devices/system/node/has_memory"),
	}
	if v == cgroup.V2 {
		// Enable only the script's controllers, so that lists of controllers are the same on every machine.
		for c := range strings.FieldsSeq(text(filepath.Join(r.Dir, "cgroup.subtree_control"))) {
			if err := r.WriteFile("cgroup.subtree_control", []byte("-"+c)); err != nil {
				return rec, fmt.Errorf("controller %s: %w", c, err)
			}
		}
		for c := range strings.FieldsSeq("cpuset cpu memory io hugetlb pids") {
			if err := r.WriteFile("cgroup.subtree_control", []byte("+"+c)); err != nil {
				return rec, fmt.Errorf("controller %s: %w", c, err)
			}
		}
	}
	const probe = "kscript-probe"
	if err := r.Mkdir(probe); err != nil {
		return rec, err
	}
	rec.Modules = r.modules(probe)
	if err := r.Rmdir(probe); err != nil {
		return rec, err
	}
	rec.Cases, err = script.Run(r, script.Machine{Version: v, Device: device()})
	return rec, err
}

// modules returns a value for Recording.Modules, the list of optional kernel modules. The result is "bfq" if the cgroup
// dir has a file of the I/O scheduler BFQ, otherwise "".
func (r *Real) modules(dir string) string {
	for _, f := range []string{dir + "/io.bfq.weight", "blkio/" + dir + "/blkio.bfq.weight"} {
		if _, err := r.ReadFile(f); err == nil {
			return "bfq"
		}
	}
	return ""
}

// device returns the number of a block device of the machine, as MAJOR:MINOR; "" if there is none.
func device() string {
	all, _ := filepath.Glob("/sys/block/*/dev")
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}
