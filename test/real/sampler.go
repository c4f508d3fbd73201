package real

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/test/real/internal/host"
)

// Snapshot has the effective CPU list of every watched container at one moment, by the container's directory relative
// to the sampler's root. The list of a container is empty until the container's program runs. Before that, the cgroup
// has no process, or a process of runc.
type Snapshot map[string]string

// Findings are the results of a sampler. A test should print the number of samples, because few samples without a
// violation prove little.
type Findings struct {
	Samples    int      // snapshots that the function judge has checked, because two passes in a row agreed
	Torn       int      // passes that differed from the pass before, and were discarded
	Reads      int      // files read
	Containers int      // the largest number of containers in a snapshot
	States     int      // samples that differed from the sample before
	Violations int      // samples that the function judge refused
	First      []string // the errors of the first violations
}

// String returns the numbers in one line.
func (f Findings) String() string {
	return fmt.Sprintf("%d samples of up to %d containers (%d states, %d discarded passes, %d cgroup reads), %d violations",
		f.Samples, f.Containers, f.States, f.Torn, f.Reads, f.Violations)
}

// maxErrors is the maximum length of Findings.First.
const maxErrors = 10

// Sampler reads the effective cpusets below a cgroup in a loop without pauses. It reads one file after another, so one
// pass may show a CPU in two containers while the agent moves the CPU from one to the other. A snapshot therefore
// counts only if two passes in a row are equal. All its lists were then in force at the moment between the two passes.
// The sampler can miss a state that lasts for less than two passes.
type Sampler struct {
	root, file string                // the watched directory, and the name of the file that is read in each directory
	isWatched  func(dir string) bool // reports whether a directory is the cgroup of a watched container
	judge      func(Snapshot) error  // returns an error for a snapshot that must not occur
	open       map[string]*os.File   // the open cpuset file of each directory
	begun      map[string]bool       // the directories of containers whose program runs
	stop       chan struct{}         // closed when the sampler must end
	stopped    chan struct{}         // closed when the sampler has ended
	once       sync.Once             // closes stop
	found      Findings              // the results so far; other goroutines may read them when stopped is closed
}

// Sample starts a sampler of the containers of this runtime. It does not watch the sandbox containers of pods. The
// sampler calls judge for each snapshot, and stops at the end of the test.
func (c *Containerd) Sample(judge func(Snapshot) error) *Sampler {
	c.t.Helper()
	return NewSampler(c.t, c.parent, c.isContainer, judge)
}

// isContainer reports whether a directory is the cgroup of a container. It knows each container before the cgroup
// exists: the runtime returns the id when the container is created, and makes the cgroup when the container starts.
func (c *Containerd) isContainer(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.containers[ContainerID(filepath.Base(dir))]
	return ok
}

// NewSampler starts a sampler of the directories below root for which the function keep returns true. The parameter
// root is a path in the cpuset hierarchy.
func NewSampler(t testing.TB, root string, keep func(dir string) bool, judge func(Snapshot) error) *Sampler {
	t.Helper()
	all, err := host.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.HierarchyFor(all, "cpuset")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{
		root: filepath.Join(h.Mount, root), file: "cpuset.effective_cpus", isWatched: keep, judge: judge,
		open: map[string]*os.File{}, begun: map[string]bool{}, stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if h.Unified {
		s.file = "cpuset.cpus.effective"
	}
	go s.run()
	t.Cleanup(func() { s.Stop() })
	return s
}

// Stop ends the sampling and returns the findings. A second call returns the same findings.
func (s *Sampler) Stop() Findings {
	s.once.Do(func() { close(s.stop) })
	<-s.stopped
	return s.found
}

// run takes samples in a loop, until stop is closed.
func (s *Sampler) run() {
	defer close(s.stopped)
	defer func() {
		for _, f := range s.open {
			f.Close()
		}
	}()
	var judged Snapshot
	for before := s.readLists(); ; {
		select {
		case <-s.stop:
			return
		default:
		}
		now := s.readLists()
		if !maps.Equal(before, now) {
			s.found.Torn++
			before = now
			continue
		}
		s.found.Samples++
		s.found.Containers = max(s.found.Containers, len(now))
		if judged == nil || !maps.Equal(judged, now) {
			s.found.States++
			judged = now
		}
		if err := s.judge(now); err != nil {
			s.found.Violations++
			if len(s.found.First) < maxErrors {
				s.found.First = append(s.found.First, err.Error())
			}
		}
	}
}

// readLists reads the CPU list of every watched directory once. It leaves out cgroups that are removed meanwhile.
func (s *Sampler) readLists() Snapshot {
	seen := Snapshot{}
	s.walk(s.root, "", seen)
	for dir, f := range s.open {
		if _, ok := seen[dir]; !ok {
			f.Close()
			delete(s.open, dir)
			delete(s.begun, dir)
		}
	}
	return seen
}

// walk adds the watched directories in path to a snapshot. rel is the same path, relative to the root of the sampler.
func (s *Sampler) walk(path, rel string, seen Snapshot) {
	if rel != "" && s.isWatched(rel) {
		if list, err := s.read(path, rel); err == nil {
			seen[rel] = list
		}
		return // cgroups that a container makes below its own cgroup are ignored
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			s.walk(filepath.Join(path, e.Name()), filepath.Join(rel, e.Name()), seen)
		}
	}
}

// read returns the CPU list of a container; "" if the container's program does not run yet.
func (s *Sampler) read(path, rel string) (string, error) {
	f := s.open[rel]
	if f == nil {
		opened, err := os.Open(filepath.Join(path, s.file))
		if err != nil {
			return "", err
		}
		f, s.open[rel] = opened, opened
	}
	s.found.Reads++
	buffer := make([]byte, 4096) // the kernel returns at most a page
	n, err := f.ReadAt(buffer, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if !s.hasBegun(path, rel) {
		return "", nil
	}
	return strings.TrimSpace(string(buffer[:n])), nil
}

// hasBegun reports whether a container's program runs. The caller has read the CPU list before: if the program does not
// run now, it also did not run when the list was read.
func (s *Sampler) hasBegun(path, rel string) bool {
	if s.begun[rel] {
		return true
	}
	s.found.Reads++
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return false
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		// Until the process executes the container's program, its executable is runc or a sealed copy of runc. The process
		// name does not show this, because the name is "exe" at first.
		exe, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
		if err == nil && !strings.Contains(exe, "runc") {
			s.begun[rel] = true
		}
	}
	return s.begun[rel]
}

// NoSharing returns a function for the parameter judge of Sample. That function returns an error if an exclusive
// container shares a CPU with another container. It calls the function exclusive for every sample to find out whether a
// container is exclusive, so this can change during the test.
func NoSharing(exclusive func(dir string) bool) func(Snapshot) error {
	return func(s Snapshot) error {
		sets := make(map[string]map[int]bool, len(s))
		for dir, list := range s {
			cpus, err := parseCPUs(list)
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			sets[dir] = cpus
		}
		for dir := range s {
			if !exclusive(dir) {
				continue
			}
			if cpu, other, shared := sharedCPU(dir, sets); shared {
				return fmt.Errorf("CPU %d of %s (%s) is also in %s (%s)", cpu, dir, s[dir], other, s[other])
			}
		}
		return nil
	}
}

// sharedCPU returns a CPU that a container shares with another container, and the directory of the other one.
func sharedCPU(dir string, sets map[string]map[int]bool) (cpu int, other string, shared bool) {
	for other, cpus := range sets {
		if other == dir {
			continue
		}
		for cpu := range sets[dir] {
			if cpus[cpu] {
				return cpu, other, true
			}
		}
	}
	return 0, "", false
}
