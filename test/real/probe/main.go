// Command probe is the workload of the tests on a real runtime. First it prints its CPUs, cgroup and environment as one
// line of JSON, except with flood, echo and pause. Then it does what its first argument selects:
//
//	(none), sleep   sleeps until SIGTERM
//	spin            burns one CPU until SIGTERM
//	await F=V...    waits until each file F of its cgroup has the value V, prints the time in ns, and sleeps
//	exit N          ends with status N
//	flood           prints more than all pipes hold; when a reader has taken this output, it becomes `probe sleep`
//	echo            copies stdin to stdout until stdin ends, and prints whether stdin was a terminal
//	pause           reaps children and sleeps until SIGTERM, as the process of a sandbox image does
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/test/real/view"
)

// cgroupFiles are the cgroup files whose content probe prints, if they exist.
var cgroupFiles = []string{
	"cpuset.cpus", "cpuset.mems", "cpu.idle", "pids.max",
	// v1
	"cpuset.effective_cpus", "cpuset.effective_mems", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us",
	"cpu.cfs_burst_us", "memory.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.memsw.limit_in_bytes",
	// v2
	"cpuset.cpus.effective", "cpuset.mems.effective", "cpuset.cpus.partition", "cpu.weight", "cpu.max", "cpu.max.burst",
	"memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max",
}

func main() {
	started := time.Now().UnixNano()
	mode := "sleep"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	var first []byte
	switch mode {
	case "echo":
		os.Exit(echo())
	case "flood":
		os.Exit(flood())
	}
	if mode != "pause" {
		first = look(started)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if first != nil {
		os.Stdout.Write(append(first, '\n'))
	}
	switch mode {
	case "pause":
		reapUntil(end)
	case "sleep":
		<-end
	case "spin":
		spinUntil(end)
	case "await":
		await(os.Args[2:])
		<-end
	case "exit":
		os.Exit(exitStatus())
	default:
		fmt.Fprintf(os.Stderr, "probe: unknown mode %q\n", mode)
		os.Exit(2)
	}
}

// echo copies stdin to stdout, and prints whether stdin is a terminal. It returns 7, an exit status that no error has.
// So a test sees that the runtime reports the exit status unchanged.
func echo() int {
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("terminal: %v\n", err == nil)
	return 7
}

// flood prints 1 MiB, and then becomes `probe sleep`. It returns only after an error.
func flood() int {
	_, err := os.Stdout.Write(bytes.Repeat([]byte{'\n'}, 1<<20))
	if err == nil {
		err = syscall.Exec("/proc/self/exe", []string{os.Args[0], "sleep"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "probe:", err)
	return 1
}

// look returns the line of JSON that describes this process.
func look(started int64) []byte {
	v := view.View{Started: started, Affinity: affinity(), NumCPU: runtime.NumCPU(), Args: os.Args, Env: map[string]string{}, Cgroup: cgroup()}
	for line := range strings.Lines(text("/proc/self/status")) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "Cpus_allowed_list":
			v.CPUsAllowed = strings.TrimSpace(value)
		case "Mems_allowed_list":
			v.MemsAllowed = strings.TrimSpace(value)
		}
	}
	for _, pair := range os.Environ() {
		key, value, _ := strings.Cut(pair, "=")
		v.Env[key] = value
	}
	v.CgroupLines = strings.Split(strings.TrimSpace(text("/proc/self/cgroup")), "\n")
	line, err := json.Marshal(v)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	return line
}

// await waits until each cgroup file has its value, and prints the time. It reads a file only once in a millisecond,
// because more reads would take CPU time from the processes that write the files.
func await(wants []string) {
	for _, w := range wants {
		file, value, _ := strings.Cut(w, "=")
		controller, _, _ := strings.Cut(file, ".")
		path := filepath.Join("/sys/fs/cgroup", file)
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join("/sys/fs/cgroup", controller, file)
		}
		for strings.TrimSpace(text(path)) != value {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Println(time.Now().UnixNano())
}

// affinity returns the CPU affinity of the calling thread. All threads of a new Go process inherit the same affinity.
func affinity() string {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "error: " + err.Error()
	}
	var runs []string
	for cpu := 0; cpu < len(set)*64; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		first := cpu
		for set.IsSet(cpu + 1) {
			cpu++
		}
		run := strconv.Itoa(first)
		if cpu > first {
			run += "-" + strconv.Itoa(cpu)
		}
		runs = append(runs, run)
	}
	return strings.Join(runs, ",")
}

// cgroup reads cgroupFiles of the container's own cgroup, which the runtime mounts at /sys/fs/cgroup (v2) or below
// /sys/fs/cgroup (v1).
func cgroup() map[string]string {
	seen := map[string]string{}
	for _, file := range cgroupFiles {
		controller, _, _ := strings.Cut(file, ".")
		for _, dir := range []string{"/sys/fs/cgroup", filepath.Join("/sys/fs/cgroup", controller)} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				seen[file] = strings.TrimSpace(string(b))
				break
			}
		}
	}
	return seen
}

// text returns the content of a file; "" if it cannot be read.
func text(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// spinUntil uses CPU time until a signal arrives.
func spinUntil(end <-chan os.Signal) {
	for turns := 0; len(end) == 0; turns++ {
		_ = turns
	}
}

// reapUntil waits for a signal, and meanwhile reaps the children that end.
func reapUntil(end <-chan os.Signal) {
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-child:
			for pid := 1; pid > 0; {
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// exitStatus returns the status for the mode exit: the second argument, or 0 without it.
func exitStatus() int {
	if len(os.Args) < 3 {
		return 0
	}
	status, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 2
	}
	return status
}
