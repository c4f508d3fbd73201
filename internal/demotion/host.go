package demotion

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Files reads the node's files in sysfs and procfs. Their paths begin with sys/ or proc/.
type Files interface {
	// Read returns the text of a file.
	Read(file string) (string, error)
	// List returns the names in a directory.
	List(dir string) ([]string, error)
}

// Disk reads the files of this node. Sys and Proc are the directories where sysfs and procfs are mounted.
type Disk struct{ Sys, Proc string }

// path returns the path of a file on the disk.
func (d Disk) path(file string) string {
	if rest, is := strings.CutPrefix(file, "sys/"); is {
		return filepath.Join(d.Sys, rest)
	}
	return filepath.Join(d.Proc, strings.TrimPrefix(file, "proc/"))
}

// Read returns the text of a file.
func (d Disk) Read(file string) (string, error) {
	text, err := os.ReadFile(d.path(file))
	return string(text), err
}

// List returns the names in a directory.
func (d Disk) List(dir string) (names []string, err error) {
	entries, err := os.ReadDir(d.path(dir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Files and directories of sysfs and procfs. They show how the kernel demotes cold pages, and how full the memory nodes
// are.
const (
	enabledFile   = "sys/kernel/mm/numa/demotion_enabled"
	tiersDir      = "sys/devices/virtual/memory_tiering"
	tierPrefix    = "memory_tier"
	swapsFile     = "proc/swaps"
	nodeDirPrefix = "sys/devices/system/node/node"
)

// host is the state of the node that determines how the kernel demotes cold pages.
type host struct {
	files    Files                  // reads the node's files in /sys and /proc
	distance func(from, to int) int // the NUMA distance between two memory nodes
	tiers    map[int]int            // the kernel's memory tier of each memory node; a higher number is slower memory
	hasSwap  bool                   // the node has a swap device
}

// readHost reads the state of the node. It returns an error if the demoter must not ask the kernel to reclaim.
func readHost(files Files, distance func(from, to int) int) (h host, err error) {
	h.files, h.distance = files, distance
	switch text, err := files.Read(enabledFile); {
	case errors.Is(err, fs.ErrNotExist):
		return h, fmt.Errorf("the kernel cannot demote pages: there is no /%s", enabledFile)
	case err != nil:
		return h, err
	case strings.TrimSpace(text) != "true" && strings.TrimSpace(text) != "1":
		return h, fmt.Errorf("demotion is off: /%s is %s", enabledFile, strings.TrimSpace(text))
	}
	if h.tiers, err = readTiers(files); err != nil {
		return h, err
	}
	text, err := files.Read(swapsFile)
	h.hasSwap = strings.Count(strings.TrimSpace(text), "\n") > 0 // the first line is a heading
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a kernel without swap
	}
	return h, err
}

// readTiers returns the kernel's tier of each memory node.
func readTiers(files Files) (map[int]int, error) {
	names, err := files.List(tiersDir)
	if err != nil {
		return nil, fmt.Errorf("the kernel does not report memory tiers (Linux 6.1 and later do): %w", err)
	}
	tiers := map[int]int{}
	for _, name := range names {
		tier, err := strconv.Atoi(strings.TrimPrefix(name, tierPrefix))
		if err != nil {
			continue // not a tier, but power or uevent
		}
		text, err := files.Read(tiersDir + "/" + name + "/nodelist")
		if err != nil {
			return nil, err
		}
		nodes, err := topology.ParseList(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("/%s/%s/nodelist: %w", tiersDir, name, err)
		}
		for _, node := range nodes {
			tiers[node] = tier
		}
	}
	return tiers, nil
}

// checkDemotionTargets returns nil if the kernel demotes pages from each fast node of a container only to memory nodes
// of the container. If the kernel also demotes pages to other nodes, it returns an error, because the container may not
// use those nodes. If a fast node has no slower node, it returns an error, because the kernel would drop page cache
// instead.
func (h host) checkDemotionTargets(c Container) error {
	mine := slices.Concat(c.Fast, c.Slow)
	for _, from := range c.Fast {
		targets := h.demotionTargets(from)
		if len(targets) == 0 {
			return fmt.Errorf("no memory node is slower than memory node %d (/%s)", from, tiersDir)
		}
		for _, node := range targets {
			if !slices.Contains(mine, node) {
				return fmt.Errorf("the kernel demotes pages from memory node %d to node %d, which the container may not use", from, node)
			}
		}
	}
	return nil
}

// demotionTargets returns the nodes to which the kernel demotes pages of a node: the nearest nodes of the next slower
// tier (mm/memory-tiers.c: establish_demotion_targets).
func (h host) demotionTargets(from int) (nodes []int) {
	tier, known := h.tiers[from]
	if !known {
		return nil
	}
	rank := func(node int) (tier, distance int) { return h.tiers[node], h.distance(from, node) }
	for _, node := range slices.Sorted(maps.Keys(h.tiers)) {
		t, d := rank(node)
		if t <= tier {
			continue
		}
		if len(nodes) > 0 {
			bestTier, best := rank(nodes[0])
			switch order := cmp.Or(cmp.Compare(t, bestTier), cmp.Compare(d, best)); {
			case order > 0:
				continue
			case order < 0:
				nodes = nil
			}
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// checkRoom returns an error if the slow nodes have too little free memory for the given number of bytes. One twentieth
// of the memory of each node must stay free. If a slow node is full, the kernel would move pages to another node, or
// reclaim pages of other containers.
func (h host) checkRoom(slow []int, bytes int64) error {
	var room int64
	for _, node := range slow {
		text, err := h.files.Read(nodeDirPrefix + strconv.Itoa(node) + "/meminfo")
		if err != nil {
			return err
		}
		total, free := meminfo(text, "MemTotal:"), meminfo(text, "MemFree:")
		room += max(free-total/reservedDivisor, 0)
	}
	if room < bytes {
		return fmt.Errorf("the slow memory nodes of the container are almost full: only %d bytes may be used", room)
	}
	return nil
}

// reservedDivisor sets how much of a slow node must stay free: one twentieth. The kernel's own watermarks are lower.
const reservedDivisor = 20

// meminfo returns the value of a key in the text of a memory node's meminfo file, in bytes; 0 if the key is missing.
func meminfo(text, key string) int64 {
	for line := range strings.Lines(text) { // Node 2 MemFree: 1024 kB
		if f := strings.Fields(line); len(f) == 5 && f[2] == key {
			kib, _ := strconv.ParseInt(f[3], 10, 64)
			return kib << 10
		}
	}
	return 0
}
