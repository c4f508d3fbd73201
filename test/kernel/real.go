// Package kernel runs the kernel script of test/kernel/script on real kernels: on this host's, in a cgroup of the test,
// and, with the program guest, on those of the virtual machines of test/vm.
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

// Timeouts for the kernel's asynchronous work: removing a dead task (taskEndTimeout), and updating cpusets after a
// hotplug (conditionTimeout, and extraWait after the condition holds). An emulated kernel is slow.
const (
	taskEndTimeout   = 10 * time.Second
	conditionTimeout = 2 * time.Second
	extraWait        = 300 * time.Millisecond
)

// Real is the kernel of this machine.
type Real struct {
	*cgroup.Real
	Dir string // where the hierarchies are mounted
	// TaskCommand is a program that runs Task.
	TaskCommand []string

	tasks map[int]*task
}

type task struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	reply *bufio.Reader
}

// controllers returns the mounted hierarchies of version 1.
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

// Rmdir removes a cgroup from every hierarchy, or from none.
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
		return nil // the kernel has already ended it
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

// Task is the loop of a task: it prints that it runs, then uses as much memory as each line of its input requests.
func Task(in io.Reader, out io.Writer) {
	var held [][]byte
	fmt.Fprintln(out, "here")
	for s := bufio.NewScanner(in); s.Scan(); {
		n, _ := strconv.Atoi(s.Text())
		held = append(held, bytes.Repeat([]byte{1}, n))
		fmt.Fprintln(out, len(held))
	}
}

// SetOnline takes a CPU offline or online, and waits until the cpusets show that.
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
	// The kernel updates the root first and its children in the same work item. While partitions own CPUs, the root never
	// has all of them.
	wait(func() bool {
		got, err := os.ReadFile(filepath.Join(r.Dir, root))
		return err == nil && bytes.Equal(got, want)
	})
	return nil
}

// wait waits until a condition holds, and then extraWait for the rest of the kernel's work. A condition that never
// holds is no error: the script records whatever the kernel shows.
func wait(done func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(conditionTimeout); !done() && time.Now().Before(end); {
		<-tick.C
	}
	<-time.After(extraWait)
}

// Record runs the script on this machine's kernel.
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
		// Only the script's controllers, so that lists of controllers are the same on every machine.
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

// modules reports, by the files of a cgroup, which optional modules the kernel has.
func (r *Real) modules(dir string) string {
	for _, f := range []string{dir + "/io.bfq.weight", "blkio/" + dir + "/blkio.bfq.weight"} {
		if _, err := r.ReadFile(f); err == nil {
			return "bfq"
		}
	}
	return ""
}

// device returns the number of a block device of the machine.
func device() string {
	all, _ := filepath.Glob("/sys/block/*/dev")
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}
