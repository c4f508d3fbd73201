package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// CPUHardware has the frequencies and idle states that the processors support.
type CPUHardware struct {
	MinFreq     int      `json:"minFreq,omitempty"`     // lowest frequency in kHz; 800000 if left out
	BaseFreq    int      `json:"baseFreq,omitempty"`    // base frequency in kHz; 2000000 if left out
	MaxFreq     int      `json:"maxFreq,omitempty"`     // highest frequency in kHz; 3500000 if left out
	Governors   []string `json:"governors,omitempty"`   // performance and powersave if left out; the last one is in force at the start
	Preferences []string `json:"preferences,omitempty"` // energy preferences; the first one is in force at the start
	CStates     []string `json:"cStates,omitempty"`     // names of the idle states; POLL, C1 and C6 if left out
	PerPolicy   int      `json:"perPolicy,omitempty"`   // number of CPUs in a cpufreq policy; 1 if left out
}

// CPUFiles simulates the cpufreq and cpuidle files below /sys/devices/system/cpu. It accepts the same writes as the
// drivers intel_pstate and cpuidle of Linux 6.8.
type CPUFiles struct {
	mu         sync.Mutex
	files      map[string]string // the text of each file, by path
	policyDirs map[string]string // the directory of each CPU's cpufreq policy, by the CPU's directory, such as "cpu0"
	// savedPreferences has the energy preference that a policy had before its governor became performance. The keys are
	// paths of energy_performance_preference.
	savedPreferences map[string]string
	// Refuse is called before each write that the kernel accepts. If Refuse returns an error, the write fails with this
	// error. Refuse may be nil.
	Refuse func(file, text string) error
	// AcceptedWrites lists all accepted writes, as file=text.
	AcceptedWrites []string
}

// NewCPUFiles makes the cpufreq and cpuidle files of CPUs.
func NewCPUFiles(h CPUHardware, cpus []int) *CPUFiles {
	h.MinFreq, h.BaseFreq, h.MaxFreq = cmp.Or(h.MinFreq, 800000), cmp.Or(h.BaseFreq, 2000000), cmp.Or(h.MaxFreq, 3500000)
	h.PerPolicy = cmp.Or(h.PerPolicy, 1)
	if h.Governors == nil {
		h.Governors = []string{"performance", "powersave"}
	}
	if h.Preferences == nil {
		h.Preferences = []string{"balance_performance", "performance", "balance_power", "power"}
	}
	if h.CStates == nil {
		h.CStates = []string{"POLL", "C1", "C6"}
	}
	c := &CPUFiles{files: map[string]string{}, policyDirs: map[string]string{}, savedPreferences: map[string]string{}}
	for at := range slices.Chunk(slices.Sorted(slices.Values(cpus)), h.PerPolicy) {
		dir := "cpufreq/policy" + strconv.Itoa(at[0])
		var list []string
		for _, cpu := range at {
			list = append(list, strconv.Itoa(cpu))
			name := "cpu" + strconv.Itoa(cpu)
			c.policyDirs[name] = dir
			for i, state := range h.CStates {
				idle := fmt.Sprintf("%s/cpuidle/state%d/", name, i)
				c.files[idle+"name"], c.files[idle+"disable"] = state, "0"
			}
		}
		for name, text := range map[string]string{
			"affected_cpus": strings.Join(list, " "), "cpuinfo_min_freq": strconv.Itoa(h.MinFreq), "cpuinfo_max_freq": strconv.Itoa(h.MaxFreq),
			"base_frequency": strconv.Itoa(h.BaseFreq), "scaling_min_freq": strconv.Itoa(h.MinFreq), "scaling_max_freq": strconv.Itoa(h.MaxFreq),
			"scaling_governor": h.Governors[len(h.Governors)-1], "scaling_available_governors": strings.Join(h.Governors, " "),
			"energy_performance_preference": h.Preferences[0], "energy_performance_available_preferences": strings.Join(h.Preferences, " "),
		} {
			c.files[dir+"/"+name] = text
		}
	}
	return c
}

// resolvePolicyLink replaces the link cpuN/cpufreq at the beginning of a path by the directory of the CPU's policy.
func (c *CPUFiles) resolvePolicyLink(file string) string {
	cpu, rest, _ := strings.Cut(path.Clean(file), "/")
	if name, is := strings.CutPrefix(rest, "cpufreq/"); is && c.policyDirs[cpu] != "" {
		return c.policyDirs[cpu] + "/" + name
	}
	return path.Clean(file)
}

// Read returns the text of a file.
func (c *CPUFiles) Read(file string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, found := c.files[c.resolvePolicyLink(file)]
	if !found {
		return "", &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	}
	return text, nil
}

// Write writes a text to a file. It fails if the kernel would refuse the text.
func (c *CPUFiles) Write(file, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.resolvePolicyLink(file)
	if _, found := c.files[at]; !found {
		return &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	}
	err := c.checkWrite(at, text)
	if c.Refuse != nil && err == nil {
		err = c.Refuse(at, text)
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	c.AcceptedWrites = append(c.AcceptedWrites, at+"="+text)
	c.set(at, text)
	return nil
}

// set changes a file. If the governor becomes performance, set also sets the energy preference performance. If the
// governor becomes another one, set restores the earlier energy preference.
func (c *CPUFiles) set(at, text string) {
	preference := path.Dir(at) + "/energy_performance_preference"
	if path.Base(at) == "scaling_governor" && c.files[at] != text {
		if text == "performance" {
			c.savedPreferences[preference], c.files[preference] = c.files[preference], "performance"
		} else if c.files[at] == "performance" {
			c.files[preference] = cmp.Or(c.savedPreferences[preference], c.files[preference])
		}
	}
	c.files[at] = text
}

// checkWrite returns the error with which the kernel refuses a write; nil if the kernel accepts the write.
func (c *CPUFiles) checkWrite(at, text string) error {
	dir := path.Dir(at) + "/"
	number := func(name string) int {
		n, _ := strconv.Atoi(c.files[dir+name])
		return n
	}
	listed := func(name string) bool { return slices.Contains(strings.Fields(c.files[dir+name]), text) }
	n, err := strconv.Atoi(text)
	var ok bool
	switch path.Base(at) {
	case "scaling_min_freq":
		ok = err == nil && n >= number("cpuinfo_min_freq") && n <= number("scaling_max_freq")
	case "scaling_max_freq":
		ok = err == nil && n <= number("cpuinfo_max_freq") && n >= number("scaling_min_freq")
	case "scaling_governor":
		ok = listed("scaling_available_governors")
	case "energy_performance_preference":
		if c.files[dir+"scaling_governor"] == "performance" && text != "performance" {
			return syscall.EBUSY
		}
		ok = listed("energy_performance_available_preferences")
	case "disable":
		ok = text == "0" || text == "1"
	default:
		return syscall.EACCES
	}
	if !ok {
		return syscall.EINVAL
	}
	return nil
}

// List returns the names of the files and directories directly below dir.
func (c *CPUFiles) List(dir string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for file := range c.files {
		if rest, below := strings.CutPrefix(file, path.Clean(dir)+"/"); below {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	if len(names) == 0 {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Texts returns the texts of all files, by path.
func (c *CPUFiles) Texts() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.files)
}

// WriteTo writes all files into a real directory. It also makes the links from the CPUs to their policies.
func (c *CPUFiles) WriteTo(dir string) error {
	var errs []error
	for file, text := range c.Texts() {
		at := filepath.Join(dir, file)
		errs = append(errs, os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text+"\n"), 0o600))
	}
	for cpu, policy := range c.policyDirs {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, cpu), 0o700), os.Symlink("../"+policy, filepath.Join(dir, cpu, "cpufreq")))
	}
	return errors.Join(errs...)
}
