package cpuclass

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The files of a cpufreq policy that a class sets.
const (
	governorFile   = "scaling_governor"
	preferenceFile = "energy_performance_preference"
	minFreqFile    = "scaling_min_freq"
	maxFreqFile    = "scaling_max_freq"
)

// setting is a file and the text that it should have.
type setting struct{ file, text string }

// whyNoPolicy returns an error that says why a CPU belongs to no cpufreq policy. If the agent cannot read the directory
// of the policies, it is the error of this read.
func whyNoPolicy(files FS) error {
	if _, err := files.List(policiesDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.New("the kernel has no cpufreq policy for the CPU")
}

// settingsOf returns the files that the class of a unit sets, with their texts. A unit is a group of CPUs with one
// class. If the hardware does not support one of the values, settingsOf returns an error and no settings.
func settingsOf(files FS, u *unit) (out []setting, err error) {
	c := u.class
	h := cpufreqPolicy{files, u.dir}
	if u.dir == "" && c.Governor+c.EnergyPreference+string(c.MinFreq+c.MaxFreq) != "" {
		return nil, whyNoPolicy(files)
	}
	if c.Governor != "" {
		if err := h.checkOffered("governor", c.Governor, "scaling_available_governors"); err != nil {
			return nil, err
		}
		out = append(out, setting{path.Join(u.dir, governorFile), c.Governor})
	}
	if p := c.EnergyPreference; p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 0 || n > 255 { // the driver also accepts a number from 0 to 255
			if err := h.checkOffered("energy preference", p, "energy_performance_available_preferences"); err != nil {
				return nil, err
			}
		}
		out = append(out, setting{path.Join(u.dir, preferenceFile), p})
	}
	for _, f := range []struct {
		key, file string // key is the field of the configuration
		want      lifecycle.Frequency
	}{{"minFreq", minFreqFile, c.MinFreq}, {"maxFreq", maxFreqFile, c.MaxFreq}} {
		if f.want == "" {
			continue
		}
		kHz, err := h.frequency(f.key, f.want)
		if err != nil {
			return nil, err
		}
		out = append(out, setting{path.Join(u.dir, f.file), strconv.FormatUint(kHz, 10)})
	}
	for _, cpu := range u.cpus {
		more, err := idleStateSettings(files, cpu, c.DisabledCStates)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// cpufreqPolicy reads what the hardware supports from the files of a cpufreq policy.
type cpufreqPolicy struct {
	files  FS
	policy string // the directory of the policy
}

// checkOffered returns nil if the value is in the list of supported values in a file of the policy, and otherwise an
// error. kind is the name of the value in the error.
func (h cpufreqPolicy) checkOffered(kind, value, file string) error {
	list, err := h.files.Read(path.Join(h.policy, file))
	if err != nil {
		return fmt.Errorf("the agent cannot read which values of the %s the kernel supports: %w", kind, err)
	}
	if !slices.Contains(strings.Fields(list), value) {
		return fmt.Errorf("the hardware does not have the %s %s; it has %s (%s)", kind, value, list, file)
	}
	return nil
}

// frequency returns a frequency in kHz, or an error if the hardware does not support the frequency. key is the field of
// the configuration that has the frequency.
func (h cpufreqPolicy) frequency(key string, f lifecycle.Frequency) (kHz uint64, err error) {
	lowest, err := h.readKHz("cpuinfo_min_freq")
	if err != nil {
		return 0, err
	}
	highest, err := h.readKHz("cpuinfo_max_freq")
	if err != nil {
		return 0, err
	}
	switch f {
	case lifecycle.LowestFreq:
		return lowest, nil
	case lifecycle.TurboFreq:
		return highest, nil
	case lifecycle.BaseFreq:
		if kHz, err = h.readKHz("base_frequency"); err != nil {
			return 0, fmt.Errorf("%s is base, and the agent cannot read the base frequency: %w", key, err)
		}
	default:
		kHz, _ = f.KHz()
	}
	if kHz < lowest || kHz > highest {
		return 0, fmt.Errorf("%s %d kHz is outside the range of the hardware: %d to %d kHz (cpuinfo_min_freq, cpuinfo_max_freq)", key, kHz, lowest, highest)
	}
	return kHz, nil
}

// readKHz reads a file of the policy that has a frequency in kHz.
func (h cpufreqPolicy) readKHz(file string) (uint64, error) {
	text, err := h.files.Read(path.Join(h.policy, file))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the file %s has %q instead of a frequency: %w", file, text, err)
	}
	return n, nil
}

// idleStateSettings returns the settings that disable some idle states of a CPU. The parameter disabled has the names
// of these states.
func idleStateSettings(files FS, cpu int, disabled []string) (out []setting, err error) {
	if len(disabled) == 0 {
		return nil, nil
	}
	dir := fmt.Sprintf("cpu%d/cpuidle", cpu)
	states, err := files.List(dir)
	if err != nil {
		return nil, fmt.Errorf("the kernel has no idle states for the CPU: %w", err)
	}
	of := map[string]string{}
	var has []string
	for _, state := range states {
		if name, err := files.Read(path.Join(dir, state, "name")); err == nil {
			of[name], has = path.Join(dir, state, "disable"), append(has, name)
		}
	}
	for _, name := range disabled {
		file, known := of[name]
		if !known {
			return nil, fmt.Errorf("the CPU has no C-state %s; it has %s", name, strings.Join(has, ", "))
		}
		out = append(out, setting{file, "1"})
	}
	return out, nil
}

// Check returns the reasons why CPUs do not support classes, by the name of the class. A class that
// every CPU supports is not in the map. Check reads files and writes none.
func Check(files FS, classes []lifecycle.CPUClass, cpus []int) (unsupported map[string]string) {
	unsupported = map[string]string{}
	for i := range classes {
		for _, u := range unitsOf(policiesOf(files), []WantedClass{{Class: classes[i], CPUs: cpus}}, nil) {
			if _, err := settingsOf(files, &u); err != nil {
				unsupported[classes[i].Name] = fmt.Sprintf("CPU %d: %v", u.cpus[0], err)
				break
			}
		}
	}
	return unsupported
}
