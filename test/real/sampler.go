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
// to the sampler's root. A list is empty until the container's first instruction: before, the cgroup has no process, or
// runc's.
type Snapshot map[string]string

// Findings are the results of a sampler. A test should print them: few samples without violations prove little.
type Findings struct {
	Samples    int      // consistent snapshots, each judged
	Torn       int      // discarded passes, because two in a row differed
	Reads      int      // files read
	Containers int      // most containers in one snapshot
	States     int      // samples that differed from the one before
	Violations int      // samples that the function judge refused
	First      []string // the first violations
}

func (f Findings) String() string {
	return fmt.Sprintf("%d samples of up to %d containers (%d states, %d torn passes, %d cgroup reads), %d violations",
		f.Samples, f.Containers, f.States, f.Torn, f.Reads, f.Violations)
}

const wordsKept = 10

// Sampler reads the effective cpusets below a cgroup in a loop without pauses. It reads one file after another, so one
// pass may show a CPU in two containers while it moves. A snapshot therefore counts only if two passes in a row are
// equal: then it held at the moment between them. The sampler can miss a state that lasts for less than two passes.
type Sampler struct {
	root, file string                // the watched directory, and the name of the file that is read in each directory
	keep       func(dir string) bool // reports whether a directory is a watched container
	judge      func(Snapshot) error  // returns an error for a snapshot that must not occur
	open       map[string]*os.File   // by directory: its file
	begun      map[string]bool       // by directory: the container's own process was seen
	stop       chan struct{}
	stopped    chan struct{}
	once       sync.Once
	found      Findings
}

// Sample watches this runtime's containers, without sandboxes, and judges each snapshot. It stops with the test.
func (c *Containerd) Sample(judge func(Snapshot) error) *Sampler {
	c.t.Helper()
	return NewSampler(c.t, c.parent, c.isContainer, judge)
}

// isContainer recognises a container before its cgroup exists: the runtime assigns the id at create and makes the
// cgroup at start.
func (c *Containerd) isContainer(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.containers[ContainerID(filepath.Base(dir))]
	return ok
}

// NewSampler watches the directories below root for which keep returns true. root is a path in the cpuset hierarchy.
func NewSampler(t testing.TB, root string, keep func(dir string) bool, judge func(Snapshot) error) *Sampler {
	t.Helper()
	all, err := host.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.For(all, "cpuset")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{
		root: filepath.Join(h.Mount, root), file: "cpuset.effective_cpus", keep: keep, judge: judge,
		open: map[string]*os.File{}, begun: map[string]bool{}, stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if h.Unified {
		s.file = "cpuset.cpus.effective"
	}
	go s.run()
	t.Cleanup(func() { s.Stop() })
	return s
}

// Stop ends the sampling and returns the findings. It may be called again.
func (s *Sampler) Stop() Findings {
	s.once.Do(func() { close(s.stop) })
	<-s.stopped
	return s.found
}

func (s *Sampler) run() {
	defer close(s.stopped)
	defer func() {
		for _, f := range s.open {
			f.Close()
		}
	}()
	var judged Snapshot
	for before := s.pass(); ; {
		select {
		case <-s.stop:
			return
		default:
		}
		now := s.pass()
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
			if len(s.found.First) < wordsKept {
				s.found.First = append(s.found.First, err.Error())
			}
		}
	}
}

// pass reads every kept directory once. It leaves out cgroups that are removed meanwhile.
func (s *Sampler) pass() Snapshot {
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

func (s *Sampler) walk(path, rel string, seen Snapshot) {
	if rel != "" && s.keep(rel) {
		if list, err := s.read(path, rel); err == nil {
			seen[rel] = list
		}
		return // cgroups that a container makes below its own are ignored
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

// hasBegun reports whether a container's first instruction has run. It is called after the list was read: a container
// that has not begun now had not begun then.
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
		// Until it executes the container's program, the process is runc or a sealed copy of it. The executable shows that;
		// the process name does not, since it is "exe" at first.
		exe, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
		if err == nil && !strings.Contains(exe, "runc") {
			s.begun[rel] = true
		}
	}
	return s.begun[rel]
}

// NoSharing returns a judge: a container for which exclusive returns true must share no CPU with another one. exclusive
// is called for every sample, so its answer may change.
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
			if cpu, other, shared := sharing(dir, sets); shared {
				return fmt.Errorf("CPU %d of %s (%s) is also in %s (%s)", cpu, dir, s[dir], other, s[other])
			}
		}
		return nil
	}
}

func sharing(dir string, sets map[string]map[int]bool) (cpu int, other string, shared bool) {
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
