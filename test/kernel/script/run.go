package script

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Kernel is a kernel on which the script runs. In version 1, Mkdir and Rmdir act on the hierarchies of all controllers.
type Kernel interface {
	cgroup.FS
	Tasks
	Mkdir(dir string) error
	Rmdir(dir string) error
	// SetOnline takes a CPU offline or online and returns when the cpusets are updated.
	SetOnline(cpu int, online bool) error
}

// Tasks starts and ends tasks, which are processes that the script moves between cgroups.
type Tasks interface {
	// Spawn starts a task and returns its pid.
	Spawn() (pid int, err error)
	// Grow makes a task use more memory.
	Grow(pid int, bytes int64) error
	// Kill ends a task, and returns when the task has ended.
	Kill(pid int) error
	// AwaitEnd waits until the kernel, for example its OOM killer, has ended a task.
	AwaitEnd(pid int) error
}

// Machine describes the machine of a run.
type Machine struct {
	Version cgroup.Version
	// Base is the cgroup below which the script makes its cgroups; "" for the root of the hierarchies. If Base is not "",
	// the run leaves out the cases that need the root.
	Base string
	// Device is the number of a block device, as MAJOR:MINOR. If it is "", the run leaves out the steps that need a block
	// device.
	Device string
}

// Run runs the script and returns the kernel's answers.
func Run(k Kernel, m Machine) ([]Answers, error) {
	var out []Answers
	for _, c := range Cases(m.Version) {
		if c.NeedsRoot && m.Base != "" {
			continue
		}
		r := &runner{kernel: k, machine: m, tasks: map[string]int{}}
		a := Answers{Case: c.Name}
		for _, s := range c.Steps {
			if m.Device == "" && strings.Contains(s.Text, "$dev") {
				continue
			}
			a.Steps = append(a.Steps, r.runStep(s))
		}
		if err := r.cleanUp(); err != nil {
			return out, fmt.Errorf("clean up after case %q: %w", c.Name, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// runner runs the steps of one case.
type runner struct {
	kernel  Kernel
	machine Machine
	tasks   map[string]int // pids of the running tasks, by the name of the task
	dirs    []string       // cgroups that the case made and did not remove
	offline []int          // CPUs that the case took offline
}

// runStep runs a step and returns the kernel's answer.
func (r *runner) runStep(s Step) Answer {
	a := Answer{Step: s.String(), Err: r.errno(r.do(s))}
	if s.Op == Probe {
		f := (&cgroup.Tree{FS: r.kernel, Version: r.machine.Version}).Probe(s.Path)
		a.FileTexts = append(a.FileTexts, FileText{File: "support", Text: f.Support.String()})
	}
	for _, file := range s.shown() {
		a.FileTexts = append(a.FileTexts, FileText{File: file, Text: r.fileText(file)})
	}
	return a
}

// do does the operation of a step.
func (r *runner) do(s Step) error {
	switch s.Op {
	case Mkdir:
		err := r.kernel.Mkdir(r.dir(s.Path))
		if err == nil {
			r.dirs = append(r.dirs, s.Path)
		}
		return err
	case Rmdir:
		err := r.kernel.Rmdir(r.dir(s.Path))
		if err == nil {
			r.dirs = slices.DeleteFunc(r.dirs, func(d string) bool { return d == s.Path })
		}
		return err
	case Write:
		return r.kernel.WriteFile(r.file(s.Path), []byte(r.fillNames(s.Text)))
	case Read, Probe:
		return nil
	case CPU:
		id, err := strconv.Atoi(s.Path)
		if err != nil {
			return err
		}
		r.offline = slices.DeleteFunc(r.offline, func(c int) bool { return c == id })
		if s.Text == "0" {
			r.offline = append(r.offline, id)
		}
		return r.kernel.SetOnline(id, s.Text == "1")
	}
	return r.doOnTask(s)
}

// doOnTask does the operation of a step on a task.
func (r *runner) doOnTask(s Step) error {
	var err error
	pid := r.tasks[s.Path]
	switch s.Op {
	case Spawn:
		r.tasks[s.Path], err = r.kernel.Spawn()
	case Grow:
		var bytes int64
		if bytes, err = strconv.ParseInt(s.Text, 10, 64); err == nil {
			err = r.kernel.Grow(pid, bytes)
		}
	case Kill:
		delete(r.tasks, s.Path)
		err = r.kernel.Kill(pid)
	case AwaitEnd:
		err = r.kernel.AwaitEnd(pid)
	default:
		err = fmt.Errorf("no operation %q", s.Op)
	}
	return err
}

// fillNames replaces the names of tasks, such as $t, and the name $dev in a text by the pids and the device number of
// this run.
func (r *runner) fillNames(text string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	for name, pid := range r.tasks {
		text = strings.ReplaceAll(text, "$"+name, strconv.Itoa(pid))
	}
	return strings.ReplaceAll(text, "$dev", r.machine.Device)
}

// fileText returns the text of a file. It replaces the pids and the device number of this run by names, so that two runs
// have the same text.
func (r *runner) fileText(file string) string {
	data, err := r.kernel.ReadFile(r.file(file))
	if err != nil {
		return "!" + r.errno(err)
	}
	text := strings.TrimSuffix(string(data), "\n")
	base := path.Base(file)
	if base == "memory.current" || base == "memory.usage_in_bytes" {
		return "bytes" // the number differs between runs, because it includes memory that the kernel itself uses
	}
	if base == "cgroup.procs" || base == "tasks" {
		var names []string
		for name, pid := range r.tasks {
			if slices.Contains(strings.Fields(text), strconv.Itoa(pid)) {
				names = append(names, "$"+name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if r.machine.Device != "" {
		text = strings.ReplaceAll(text, r.machine.Device+" ", "$dev ")
	}
	return text
}

// dir returns the path of a directory of the script, below the machine's Base.
func (r *runner) dir(d string) string { return path.Join(r.machine.Base, d) }

// file returns the path of a file of the script in its hierarchy, below the machine's Base.
func (r *runner) file(f string) string {
	if controller, rest, given := strings.Cut(f, ":"); given {
		return hierarchyPath(r.machine.Version, controller+":"+r.dir(rest))
	}
	return hierarchyPath(r.machine.Version, r.dir(f))
}

// errno returns the name of a kernel error, such as EINVAL; "" for nil.
func (r *runner) errno(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		if name := errnoNames[errno]; name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(errno))
	case errors.Is(err, fs.ErrNotExist):
		return "ENOENT"
	}
	return err.Error()
}

// errnoNames has the names of the errors that a kernel returns for a step.
var errnoNames = map[syscall.Errno]string{
	syscall.EACCES: "EACCES", syscall.EBUSY: "EBUSY", syscall.EEXIST: "EEXIST", syscall.EINVAL: "EINVAL", syscall.ENODEV: "ENODEV", syscall.ENOENT: "ENOENT",
	syscall.ENOMEM: "ENOMEM", syscall.ENOSPC: "ENOSPC", syscall.ENOTEMPTY: "ENOTEMPTY", syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.EPERM: "EPERM",
	syscall.ERANGE: "ERANGE", syscall.ESRCH: "ESRCH", syscall.E2BIG: "E2BIG", syscall.ENAMETOOLONG: "ENAMETOOLONG", syscall.EIO: "EIO",
	syscall.EROFS: "EROFS", syscall.EOVERFLOW: "EOVERFLOW", syscall.EAGAIN: "EAGAIN", syscall.EINTR: "EINTR", syscall.ENXIO: "ENXIO", syscall.ETIMEDOUT: "ETIMEDOUT",
}

// cleanUp removes the cgroups and tasks of the case.
func (r *runner) cleanUp() error {
	var errs []error
	for _, pid := range r.tasks {
		errs = append(errs, r.kernel.Kill(pid))
	}
	for _, id := range r.offline {
		errs = append(errs, r.kernel.SetOnline(id, true))
	}
	for _, d := range slices.Backward(r.dirs) {
		errs = append(errs, r.kernel.Rmdir(r.dir(d)))
	}
	return errors.Join(errs...)
}

// FakeOf returns a simulated kernel of the machine on which a recording was made.
func FakeOf(r Recording) (*kernel.Cgroups, Machine, error) {
	const device = "254:0"
	m := Machine{Version: cgroup.V2, Device: device}
	if r.Version == cgroup.V1.String() {
		m.Version = cgroup.V1
	}
	f, err := kernel.NewCgroups(m.Version, r.CPUs, r.Mems)
	if err != nil {
		return nil, m, err
	}
	f.AddDevice(device)
	err = f.SetRelease(r.Kernel)
	if err == nil && r.Modules == "bfq" {
		err = f.AddOptionalFiles("io.bfq.weight", "blkio.bfq.weight", "blkio.bfq.weight_device")
	}
	return f, m, err
}
