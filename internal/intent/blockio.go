package intent

import (
	"fmt"
	"strings"
)

// DiskLimit limits a pod's reads and writes on one disk.
type DiskLimit struct {
	Disk string // a name such as sda, or major and minor number such as 8:0
	// BPS is bytes per second, IOPS is operations per second; 0 means no limit.
	ReadBPS, WriteBPS, ReadIOPS, WriteIOPS int64
}

// Limits for the values of a pod. The kernel stores operations per second in 32 bits. The highest value means "no
// limit", so maxIOPS is one less.
const (
	maxDisks     = 64
	maxIOPS      = 1<<32 - 2
	maxClassName = 64 // bytes
)

// blkioConfig is the annotation's entry for one disk. It leaves out members for cost models and
// latencies, because only the node's administrator can set them.
type blkioConfig struct {
	ReadBPS   int64  `json:"readBPS"`
	WriteBPS  int64  `json:"writeBPS"`
	ReadIOPS  int64  `json:"readIOPS"`
	WriteIOPS int64  `json:"writeIOPS"`
	Weight    *int64 `json:"ioWeightPercent"`
}

// readBlkioQoS reads the annotation KoordBlkioQoS: the limits of the pod's reads and writes, by disk.
func readBlkioQoS(t *podTexts, out *Pod) {
	var ask struct {
		Blocks []struct {
			Name   string      `json:"name"`
			Type   string      `json:"type"`
			Config blkioConfig `json:"ioCfg"`
		} `json:"blocks"`
	}
	text := t.annotation(KoordBlkioQoS)
	if !t.decode(KoordBlkioQoS, &ask, out) || len(ask.Blocks) == 0 {
		return
	}
	if len(ask.Blocks) > maxDisks {
		out.reportMalformed(KoordBlkioQoS, text, "has more than %d blocks", maxDisks)
		return
	}
	var limits []DiskLimit
	for _, b := range ask.Blocks {
		limit, err := diskLimit(b.Name, b.Config)
		switch {
		case b.Type != "device":
			out.reportRefused(KoordBlkioQoS, b.Name, "the block has type %q, but only type device is supported: the agent cannot find the disk of a volume", printable(b.Type))
			continue
		case err != nil:
			out.reportMalformed(KoordBlkioQoS, text, "%v", err)
			continue
		}
		if b.Config.Weight != nil {
			out.reportWarning(KoordBlkioQoS, b.Name, "ioWeightPercent is ignored: the pod's class determines the weight (hooks.blockIO)")
		}
		limits = append(limits, limit)
	}
	if len(limits) > 0 {
		out.Disks = Sourced[[]DiskLimit]{limits, KoordBlkioQoS}
	}
}

// diskLimit checks the limits of one disk in the annotation, and converts them. The name can begin with /dev/.
func diskLimit(name string, c blkioConfig) (DiskLimit, error) {
	disk := strings.TrimPrefix(name, "/dev/")
	if disk == "" || len(disk) > 64 || strings.Trim(disk, asciiAlphanumerics+":/_-") != "" {
		return DiskLimit{}, fmt.Errorf("%q is not the name of a disk", printable(name))
	}
	for _, n := range []int64{c.ReadBPS, c.WriteBPS, c.ReadIOPS, c.WriteIOPS} {
		if n < 0 {
			return DiskLimit{}, fmt.Errorf("disk %s: %d is not a limit, want a number above 0, or 0 for no limit", disk, n)
		}
	}
	if c.ReadIOPS > maxIOPS || c.WriteIOPS > maxIOPS {
		return DiskLimit{}, fmt.Errorf("disk %s: the limit is above %d operations per second", disk, maxIOPS)
	}
	return DiskLimit{disk, c.ReadBPS, c.WriteBPS, c.ReadIOPS, c.WriteIOPS}, nil
}

const asciiAlphanumerics = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// readClassName reads the name of a class of the runtime's configuration. The name must not contain a slash or begin
// with a dot, because a runtime can use the name as a part of a file path.
func readClassName(t *podTexts, key string, out *Pod) Sourced[string] {
	name := t.annotation(key)
	if name == "" {
		return Sourced[string]{}
	}
	if len(name) > maxClassName || strings.Trim(name, asciiAlphanumerics+"-_.") != "" || !strings.Contains(asciiAlphanumerics, name[:1]) {
		out.reportMalformed(key, name, "not the name of a class: want at most %d letters, digits, \"-\", \"_\" and \".\", and first a letter or digit", maxClassName)
		return Sourced[string]{}
	}
	return Sourced[string]{name, key}
}
