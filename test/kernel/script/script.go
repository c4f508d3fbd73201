package script

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Case is a part of the script that starts on an empty cgroup tree. After each case, the run removes everything that
// the case made.
type Case struct {
	Name string
	// Version is the cgroup version that the case needs; 0 means that the case runs on both versions.
	Version cgroup.Version
	// NeedsRoot means that the case changes the root of a hierarchy or takes CPUs offline. Such a case runs only if
	// Machine.Base is "", for example in a virtual machine.
	NeedsRoot bool
	Steps     []Step
}

// Op is the operation of a step.
type Op string

// The operations.
const (
	Mkdir    Op = "mkdir"
	Rmdir    Op = "rmdir"
	Write    Op = "write"
	Read     Op = "read"
	Spawn    Op = "spawn" // starts a task outside of all cgroups of the script
	Kill     Op = "kill"
	Grow     Op = "grow"  // makes a task use memory
	AwaitEnd Op = "gone"  // waits until the kernel has ended a task
	Probe    Op = "probe" // probes a kernel feature with cgroup.Tree.Probe
	CPU      Op = "cpu"   // takes a CPU offline or online
)

// Step is one operation, and the files to read afterwards.
type Step struct {
	Op Op
	// Path is a directory, a file as "dir/file", a kernel feature, the number of a CPU, or the name of a task. Which
	// one it is depends on Op. In version 1, a file also needs a controller. Path can name the controller in a prefix,
	// as in "cpuset:a/cgroup.procs". Otherwise the controller is the part of the file's name before the first dot, as
	// in "a/cpuset.cpus".
	Path string
	// Text is the text that Write writes. "$t" in this text is the pid of the task t, and "$dev" the number of a block
	// device. If Op is Grow, Text is the number of bytes. If Op is CPU, Text is "0" (offline) or "1" (online).
	Text string
	// Show are the files to read after the operation, besides the written file.
	Show []string
}

// String returns the step as recordings and tables show it.
func (s Step) String() string {
	out := string(s.Op) + " " + s.Path
	if s.Op == Write || s.Text != "" {
		out += " " + strconv.Quote(s.Text)
	}
	return out
}

// shown returns the files to read after the step.
func (s Step) shown() []string {
	if s.Op == Write {
		return append([]string{s.Path}, s.Show...)
	}
	return s.Show
}

// hierarchyPath converts p, a file in the notation of Step.Path such as "cpuset:a/cgroup.procs", to a path below the
// directory in which the hierarchies are mounted.
func hierarchyPath(v cgroup.Version, p string) string {
	controller, rest, given := strings.Cut(p, ":")
	if !given {
		controller, rest = "", p
	}
	if v == cgroup.V2 {
		return rest
	}
	if !given {
		controller, _, _ = strings.Cut(path.Base(rest), ".")
	}
	return path.Join(controller, rest)
}

// Cases returns the cases of the script for a cgroup version, in their order.
func Cases(v cgroup.Version) []Case {
	var out []Case
	for _, group := range [][]Case{treeCases(), probeCases(), cpuCases(), cpusetCases(), memoryCases(), deviceCases(), partitionCases()} {
		for _, c := range group {
			if c.Version == 0 || c.Version == v {
				out = append(out, c)
			}
		}
	}
	return out
}

// mkdir returns steps that make cgroups.
func mkdir(dirs ...string) []Step {
	var out []Step
	for _, d := range dirs {
		out = append(out, Step{Op: Mkdir, Path: d})
	}
	return out
}

// rmdir returns a step that removes a cgroup.
func rmdir(dir string) Step { return Step{Op: Rmdir, Path: dir} }

// write returns a step that writes a text to a file, and then reads this file and the files in show.
func write(file, text string, show ...string) Step {
	return Step{Op: Write, Path: file, Text: text, Show: show}
}

// enable returns a step that enables controllers for the children of a cgroup of version 2.
func enable(dir, controllers string) Step {
	return write(path.Join(dir, "cgroup.subtree_control"), controllers)
}

// read returns a step that only reads files.
func read(files ...string) Step { return Step{Op: Read, Path: "files", Show: files} }

// spawn returns a step that starts a task. Later steps use the task by its name.
func spawn(task string) Step { return Step{Op: Spawn, Path: task} }

// grow returns a step that makes a task use more memory.
func grow(task string, bytes int64) Step {
	return Step{Op: Grow, Path: task, Text: strconv.FormatInt(bytes, 10)}
}

// kill returns a step that ends a task, and then reads the files in show.
func kill(task string, show ...string) Step { return Step{Op: Kill, Path: task, Show: show} }

// awaitEnd returns a step that waits until the kernel has ended a task, and then reads the files in show.
func awaitEnd(task string, show ...string) Step { return Step{Op: AwaitEnd, Path: task, Show: show} }

// probe returns steps that probe kernel features.
func probe(features ...string) []Step {
	var out []Step
	for _, f := range features {
		out = append(out, Step{Op: Probe, Path: f})
	}
	return out
}

// lastCPU returns a step that takes CPU 3, which is the last one of the machine, offline or online. The step then reads
// the files in show.
func lastCPU(online bool, show ...string) Step {
	text := "0"
	if online {
		text = "1"
	}
	return Step{Op: CPU, Path: "3", Text: text, Show: show}
}

// writeEach returns steps that write texts into a file, one after the other.
func writeEach(file string, all ...string) []Step {
	var out []Step
	for _, t := range all {
		out = append(out, write(file, t))
	}
	return out
}

// steps joins steps and lists of steps.
func steps(parts ...any) []Step {
	var out []Step
	for _, p := range parts {
		switch p := p.(type) {
		case Step:
			out = append(out, p)
		case []Step:
			out = append(out, p...)
		default:
			panic(fmt.Sprintf("script: %T in a list of steps", p))
		}
	}
	return out
}

// Texts for the script to write. Some of them are valid, others are at or beyond the limits of what the kernel accepts.
var (
	oddNumbers = []string{
		"", "\n", " ", "0", "1", "2", "-1", "-0", "+1", "1\n", "1\n\n", " 1", "1 ", "\t1", "1 2", "1x", "x", "max", " max", "max\n", "max 1", "MAX",
		"0x10", "010", "08", "1_0", "1.5", "1e3", "--1", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "99999999999999999999999", "\x00", "1\x002",
	}
	oddLists = []string{
		"0", "0-1", "", "\n", " ", "1-0", "0-", "-1", "-", "0,,1", " 0 , 1 ", ",0,", "0\n1", "0-1\n", "0 1", "0\t1", "0,0", "1,0", "0-1,1-1", "00", "0x1",
		"x", "0x", "1.5", "0-1-2", "0-1:1/2", "0-1:2/1", "0-1:0/0", "0-1:1", "all", "none", "N", "0-N", "all:1/2", "+1", "4", "0-4", "63", "64", "1023", "1024",
		"8191", "8192", "99999", "4294967296", "99999999999999999999", "0\x001",
	}
	oddBytes = []string{
		"4095", "4096", "4097", "1k", "1K", "1m", "64M", "1g", "1G", "1t", "1p", "1e", "16e", "1b", "1kb", "1 k", "k", "0k", "0x1000", "0x1000k", "010000",
		"67108865", "9223372036854771711", "9223372036854771712", "9223372036854775806",
	}
)
