package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
)

// CPUClass has the frequencies and idle states with which the kernel should run a CPU. The agent does not
// write the files of empty fields.
type CPUClass struct {
	Name string
	// MinFreq and MaxFreq limit the frequency (scaling_min_freq, scaling_max_freq).
	MinFreq, MaxFreq Frequency
	// Governor is the cpufreq governor (scaling_governor). EnergyPreference is the value of
	// energy_performance_preference.
	Governor, EnergyPreference string
	// DisabledCStates are the names of idle states that the CPU does not enter
	// (cpuidle/stateN/disable).
	DisabledCStates []string
}

// Frequency is a frequency in kHz, written as digits, or the name of a frequency of the hardware: min,
// base or turbo. "" means that no frequency is set.
type Frequency string

// The named frequencies. The kernel shows them in cpuinfo_min_freq, base_frequency and cpuinfo_max_freq.
const (
	LowestFreq Frequency = "min"
	BaseFreq   Frequency = "base"
	TurboFreq  Frequency = "turbo"
)

// kHzPerUnit returns how many kHz a unit has, and whether the unit is known.
func kHzPerUnit(unit string) (float64, bool) {
	switch unit {
	case "", "kHz":
		return 1, true
	case "MHz":
		return 1e3, true
	case "GHz":
		return 1e6, true
	}
	return 0, false
}

// maxKHz is the highest frequency that ParseFrequency accepts, 1 THz.
const maxKHz = 1e9

// ParseFrequency parses a frequency of a configuration: a number with the unit kHz, MHz or GHz, or one of
// min, base and turbo. A number without a unit is in kHz. "" means that no frequency is set.
func ParseFrequency(text string) (Frequency, error) {
	switch f := Frequency(text); f {
	case "", LowestFreq, BaseFreq, TurboFreq:
		return f, nil
	}
	digits := strings.TrimRight(text, "kMGHz")
	unit, known := kHzPerUnit(text[len(digits):])
	n, err := strconv.ParseFloat(digits, 64)
	if !known || err != nil || !(n*unit >= 1 && n*unit <= maxKHz) {
		return "", fmt.Errorf("is %q: want a frequency such as 2900000 (kHz), 2900MHz or 2.9GHz, or min, base or turbo", text)
	}
	return Frequency(strconv.FormatUint(uint64(n*unit+0.5), 10)), nil
}

// KHz returns the frequency in kHz. known is false for min, base, turbo and "".
func (f Frequency) KHz() (n uint64, known bool) {
	n, err := strconv.ParseUint(string(f), 10, 64)
	return n, err == nil
}
