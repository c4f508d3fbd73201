package intent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Keys of openEuler's rubik (2.0) that the agent knows.
const (
	RubikPreemptable = "volcano.sh/preemptable"
	RubikCacheLimit  = "volcano.sh/cache-limit"
	RubikBurst       = "volcano.sh/quota-burst-time"
	RubikBlkioLimit  = "volcano.sh/blkio-limit"
	RubikQuotaTurbo  = "volcano.sh/quota-turbo"
	RubikCPI         = "volcano.sh/cpi"
)

// maxBurstMicros is the longest burst in µs. It is the kernel's largest quota.
const maxBurstMicros = 1<<44 - 1

// The names of rubik's two classes.
const (
	rubikOffline = "offline"
	rubikOnline  = "online"
)

// CacheLevels returns the shares of cache and memory bandwidth that rubik's levels give, by the name of the level. The
// text for the level max is "", because this level gives the whole cache and bandwidth.
func CacheLevels() map[string]RDTShares {
	return map[string]RDTShares{"low": "L3 0-20, MB 10", "middle": "L3 0-30, MB 30", "high": "L3 0-50, MB 50", "max": ""}
}

// rubikKeys are the keys of rubik 2.0 and related projects.
func rubikKeys() []Key {
	return []Key{
		{Name: RubikPreemptable, Location: PodAnnotationOrLabel, Edit: EditLive, Kinds: []Kind{Preemption, MemoryProtection, ClassReclaimed, ClassShared}, Why: "sets a class only while hooks.preemption is enabled"},
		{Name: RubikBurst, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{BurstKind}},
		{Name: RubikBlkioLimit, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{DiskLimits}},
		{Name: RubikCacheLimit, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{CacheLimit}, Why: "the agent does not adjust the level to the measured load; it treats dynamic as low"},
		{Name: RubikQuotaTurbo, Location: PodAnnotation, Handling: KeyUnsupported, Why: "the agent does not raise quotas according to the measured load"},
		{Name: RubikCPI, Location: PodAnnotation, Handling: KeyUnsupported, Why: "the agent does not lower quotas according to the measured load"},
		{Name: "qos.kunpeng.huawei.com/group", Location: PodLabel, Handling: KeyUnsupported, Why: "the agent does not read groups of kunpeng-qos-controller"},
		{Name: "qos.kunpeng.huawei.com/workload-class", Location: PodLabel, Handling: KeyUnsupported, Why: "the agent does not read groups of kunpeng-qos-controller"},
		{Name: "kubectl.kubernetes.io/last-applied-configuration", Location: PodAnnotation, Handling: KeyIgnored, Why: "rubik reads the pod's limits from it; the agent gets the limits from the runtime and the pod's spec"},
		{Name: "kubernetes.io/config.hash", Location: PodAnnotation, Handling: KeyIgnored, Why: "rubik finds the cgroup of a static pod by it; the agent gets the cgroup from the runtime"},
	}
}

// readRubik reads rubik's keys.
func readRubik(t *podTexts, _ *lifecycle.PodSpec, out *Pod) {
	readPreemptable(t, out)
	readBurst(t, out)
	readBlkioLimit(t, out)
	readCacheLimit(t, out)
}

// readPreemptable reads whether a pod is preemptable, and its class. The key may be an annotation or a
// label. If they disagree, the annotation has priority.
func readPreemptable(t *podTexts, out *Pod) {
	text, label := t.annotation(RubikPreemptable), t.label(RubikPreemptable)
	if text == "" {
		text = label
	}
	if label != "" && label != text {
		out.reportMalformed(RubikPreemptable, label, "the label disagrees with the annotation, which is %q and has priority", printable(text))
	}
	switch text {
	case "":
	case "true":
		out.Preemptable = Sourced[bool]{true, RubikPreemptable}
		out.Class, out.ClassName = Sourced[Class]{Reclaimed, RubikPreemptable}, rubikOffline
	case "false":
		out.Preemptable = Sourced[bool]{false, RubikPreemptable}
		out.Class, out.ClassName = Sourced[Class]{Shared, RubikPreemptable}, rubikOnline
	default:
		out.reportMalformed(RubikPreemptable, text, `want "true" or "false"`)
	}
}

// readBurst reads the annotation RubikBurst: a CPU burst in µs.
func readBurst(t *podTexts, out *Pod) {
	text := t.annotation(RubikBurst)
	if text == "" {
		return
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxBurstMicros || strconv.FormatInt(n, 10) != text {
		out.reportMalformed(RubikBurst, text, "want microseconds per period, a whole number from 0 to %d", int64(maxBurstMicros))
		return
	}
	out.Burst = Sourced[int64]{n, RubikBurst}
}

// readCacheLimit reads the annotation RubikCacheLimit: the name of one of CacheLevels.
func readCacheLimit(t *podTexts, out *Pod) {
	text := t.annotation(RubikCacheLimit)
	if text == "dynamic" {
		out.reportWarning(RubikCacheLimit, text, "the agent does not adjust the level to the measured load; it uses low, the first level of rubik")
		text = "low"
	}
	if _, known := CacheLevels()[text]; known {
		out.CacheLevel = Sourced[string]{text, RubikCacheLimit}
	} else if text != "" {
		out.reportMalformed(RubikCacheLimit, text, "want low, middle, high, max or dynamic")
	}
}

// rubikLimit is one element of rubik's lists of limits.
type rubikLimit struct {
	Device string   `json:"device"`
	Value  quantity `json:"value"`
}

// readBlkioLimit reads limits of disks. The annotation has four lists of limits, such as the list of read limits in
// bytes per second. If one limit is malformed, readBlkioLimit drops all limits of the pod. So a pod with a typing error
// never has only some of the limits that it requests.
func readBlkioLimit(t *podTexts, out *Pod) {
	var ask struct {
		ReadBPS   []rubikLimit `json:"device_read_bps"`
		WriteBPS  []rubikLimit `json:"device_write_bps"`
		ReadIOPS  []rubikLimit `json:"device_read_iops"`
		WriteIOPS []rubikLimit `json:"device_write_iops"`
	}
	if !t.decode(RubikBlkioLimit, &ask, out) {
		return
	}
	disks := map[string]*blkioConfig{}
	for _, direction := range []struct {
		limits []rubikLimit
		into   func(*blkioConfig) *int64
	}{
		{ask.ReadBPS, func(c *blkioConfig) *int64 { return &c.ReadBPS }},
		{ask.WriteBPS, func(c *blkioConfig) *int64 { return &c.WriteBPS }},
		{ask.ReadIOPS, func(c *blkioConfig) *int64 { return &c.ReadIOPS }},
		{ask.WriteIOPS, func(c *blkioConfig) *int64 { return &c.WriteIOPS }},
	} {
		for _, l := range direction.limits {
			if err := l.add(disks, direction.into); err != nil {
				out.reportMalformed(RubikBlkioLimit, t.annotation(RubikBlkioLimit), "%v", err)
				return
			}
		}
	}
	var limits []DiskLimit
	for _, name := range slices.Sorted(maps.Keys(disks)) {
		limit, err := diskLimit(name, *disks[name])
		if err != nil {
			out.reportMalformed(RubikBlkioLimit, t.annotation(RubikBlkioLimit), "%v", err)
			return
		}
		limits = append(limits, limit)
	}
	if len(limits) > 0 {
		out.Disks = Sourced[[]DiskLimit]{limits, RubikBlkioLimit}
	}
}

// add stores a limit in the limits of its disk. The function into returns the address of the field for the limit, such
// as ReadBPS.
func (l rubikLimit) add(disks map[string]*blkioConfig, into func(*blkioConfig) *int64) error {
	n, err := l.Value.integer()
	if err != nil {
		return fmt.Errorf("device %s: value: %w", printable(l.Device), err)
	}
	name := strings.TrimPrefix(l.Device, "/dev/")
	c := disks[name]
	if c == nil {
		if len(disks) == maxDisks {
			return fmt.Errorf("has more than %d devices", maxDisks)
		}
		c = &blkioConfig{}
		disks[name] = c
	}
	if at := into(c); *at == 0 || *at == n {
		*at = n
		return nil
	}
	return fmt.Errorf("device %s has two different limits in one direction", printable(l.Device))
}
