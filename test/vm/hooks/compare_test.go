package hooks_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// compare compares the fields of a want with a state.
func compare(want scenario.Want, got effective.State, note func(string, ...any)) {
	if want.CPUs != nil && !sameList(*want.CPUs, got.CPUs) {
		note("cpus are %q, wanted %q", got.CPUs, *want.CPUs)
	}
	if want.Mems != nil && !sameList(*want.Mems, got.Mems) {
		note("mems are %q, wanted %q", got.Mems, *want.Mems)
	}
	if want.Shares != nil && !hasShares(got, *want.Shares) {
		note("shares or weight are %d, wanted %d shares (weight %d or %d)", got.Shares, *want.Shares, effective.Weight(*want.Shares), curve(*want.Shares))
	}
	if want.Quota != nil && got.Quota != *want.Quota {
		note("quota is %d, wanted %d", got.Quota, *want.Quota)
	}
	if want.Memory != nil && got.Memory != *want.Memory {
		note("memory limit is %d, wanted %d", got.Memory, *want.Memory)
	}
	compareSpec(want, got, note)
}

func compareSpec(want scenario.Want, got effective.State, note func(string, ...any)) {
	if want.OOMScoreAdj != nil && got.OOM != *want.OOMScoreAdj {
		note("oom_score_adj is %d, wanted %d", got.OOM, *want.OOMScoreAdj)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Env)) {
		if v, has := got.Env[name]; !has || v != want.Env[name] {
			note("env %s is %q, wanted %q", name, v, want.Env[name])
		}
	}
	for _, name := range want.Absent {
		if v, has := got.Env[name]; has {
			note("env %s is %q, wanted none", name, v)
		}
	}
	for _, d := range want.Devices {
		if !slices.Contains(got.Devices, d) {
			note("devices are %q, wanted %s", got.Devices, d)
		}
	}
	for _, d := range want.CDI {
		if !slices.Contains(got.CDI, d) {
			note("CDI devices are %q, wanted %s", got.CDI, d)
		}
	}
	if want.NoDevices && len(got.Devices)+len(got.CDI) > 0 {
		note("devices are %q and %q, wanted none", got.Devices, got.CDI)
	}
	for _, dest := range slices.Sorted(maps.Keys(want.Mounts)) {
		if v := got.Mounts[dest]; v != want.Mounts[dest] {
			note("mount at %s is of %q, wanted of %q", dest, v, want.Mounts[dest])
		}
	}
}

// hasShares accepts both conversions of shares to a weight: that of runc up to 1.3, kubelets and systemd, and that of
// later releases of runc.
func hasShares(got effective.State, want uint64) bool {
	return got.HasShares(want) || got.V2 && got.Shares == curve(want)
}

// curve is runc 1.4's conversion (opencontainers/cgroups 0.0.4, ConvertCPUSharesToCgroupV2Value), by which 1024 is 100.
func curve(shares uint64) uint64 {
	switch {
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612.0-7.0/34.0)))
}

// lines joins notes to one error.
func lines(notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	return errors.New(strings.Join(notes, "\n"))
}
