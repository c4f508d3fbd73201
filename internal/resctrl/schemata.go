package resctrl

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Share is a part of a resource. For L3, it is the cache ways from From to To percent. For MB, it is To percent of the
// memory bandwidth.
type Share struct{ From, To int }

// Allocation has the shares of a group, by resource ("L3" or "MB") and cache id. The share of AnyCache is for every
// cache that has no entry. If a resource has no entry, the group's share of the resource does not change.
type Allocation map[string]map[int]Share

// AnyCache is the cache id for every cache that has no entry in an Allocation.
const AnyCache = -1

// ParseAllocation parses the text of an allocation, such as "L3 0-40, L3@1 20-60, MB 30, MB@1 50". The number after @
// is a cache id. All other numbers are percent.
func ParseAllocation(text string) (Allocation, error) {
	a := Allocation{}
	for part := range strings.SplitSeq(text, ", ") {
		what, amount, ok := strings.Cut(part, " ")
		resource, cache, one := strings.Cut(what, "@")
		id := AnyCache
		if one {
			n, err := strconv.Atoi(cache)
			ok = ok && err == nil && n >= 0
			id = n
		}
		from, to, ranged := strings.Cut(amount, "-")
		if !ranged {
			from, to = "0", amount
		}
		low, errLow := strconv.Atoi(from)
		high, errHigh := strconv.Atoi(to)
		if !ok || errLow != nil || errHigh != nil || (resource != "L3" && resource != "MB") || ranged != (resource == "L3") ||
			low < 0 || high > 100 || low >= high {
			return nil, fmt.Errorf("%q is not a share of a resource, such as L3 0-40 or MB 30", part)
		}
		if a[resource] == nil {
			a[resource] = map[int]Share{}
		}
		a[resource][id] = Share{low, high}
	}
	return a, nil
}

// machine has what a tree shows about the hardware.
type machine struct {
	waysMask      uint64           // the mask of all ways of an L3 cache
	minWays       int              // the smallest number of L3 cache ways that a group may have
	bandwidthStep int              // the smallest step of bandwidth, in percent
	cacheIDs      map[string][]int // the ids of caches, by resource
	maxValue      map[string]int64 // by resource: the largest value of a cache in the root group; for MB, it means no limit
}

// On AMD processors, the unit of MB is an eighth of a GB/s. amdNoLimit is the value for no limit. amdFullBandwidth is
// the value that stands for 100 percent in Koordinator 1.7.
const (
	amdNoLimit       = 2048
	amdFullBandwidth = 160
)

// lines returns the lines that set an allocation in a schemata file. If the allocation has no share of a resource for
// one of the caches, lines returns no line for this resource (as in Koordinator 1.7, plugin Resctrl).
func (m *machine) lines(a Allocation) ([]string, error) {
	var out []string
	for _, resource := range []string{"L3", "MB"} {
		shares, ids := a[resource], m.cacheIDs[resource]
		if len(shares) == 0 {
			continue
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("this machine cannot allocate %s", map[string]string{"L3": "its L3 cache", "MB": "memory bandwidth"}[resource])
		}
		for id := range shares {
			if id != AnyCache && !slices.Contains(ids, id) {
				return nil, fmt.Errorf("this machine has no cache with the id %d for the resource %s", id, resource)
			}
		}
		entries, err := m.entries(resource, shares)
		if err != nil {
			return nil, err
		}
		if len(entries) == len(ids) {
			out = append(out, resource+":"+strings.Join(entries, ";"))
		}
	}
	return out, nil
}

// entries returns the entries of a schemata line, such as "0=ff", in the order of the machine's caches. It stops at the
// first cache without a share. Then there are fewer entries than caches, and the caller writes no line.
func (m *machine) entries(resource string, shares map[int]Share) ([]string, error) {
	var out []string
	for _, id := range m.cacheIDs[resource] {
		s, has := shares[id]
		if !has {
			s, has = shares[AnyCache]
		}
		if !has {
			break
		}
		text, err := m.shareValue(resource, s)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%d=%s", id, text))
	}
	return out, nil
}

// shareValue returns the text of a share in schemata: a mask of cache ways for L3, and a number for MB.
func (m *machine) shareValue(resource string, s Share) (string, error) {
	if resource == "L3" {
		mask, err := waysMask(m.waysMask, s)
		if n := bits.OnesCount64(mask); err == nil && n < m.minWays {
			err = fmt.Errorf("%d-%d percent of the cache are %d ways, and this machine needs at least %d", s.From, s.To, n, m.minWays)
		}
		return strconv.FormatUint(mask, 16), err
	}
	if m.maxValue["MB"] == amdNoLimit {
		if s.To == 100 {
			return strconv.Itoa(amdNoLimit), nil
		}
		return strconv.Itoa(max(amdFullBandwidth*s.To/100, 1)), nil
	}
	step := max(m.bandwidthStep, 1)
	return strconv.Itoa(min((s.To+step-1)/step*step, 100)), nil
}

// waysMask returns the mask of the cache ways from s.From to s.To percent. Both bounds are rounded up to whole ways, as
// in Koordinator 1.7. cbm is the capacity bit mask of the whole cache.
func waysMask(cbm uint64, s Share) (uint64, error) {
	ways := bits.Len64(cbm)
	if cbm == 0 || cbm&(cbm+1) != 0 || ways == 64 {
		return 0, fmt.Errorf("the cache's mask %x is not a contiguous row of ways that begins with the first way", cbm)
	}
	start, end := (ways*s.From+99)/100, (ways*s.To+99)/100
	if s.From < 0 || start >= end {
		return 0, fmt.Errorf("%d-%d percent of the cache are less than one cache way", s.From, s.To)
	}
	return 1<<end - 1<<start, nil
}

// readMachine reads what a tree shows about the hardware. It reads the files of the root group and below info.
func readMachine(files FS) (*machine, error) {
	m := &machine{cacheIDs: map[string][]int{}, maxValue: map[string]int64{}, minWays: 1, bandwidthStep: 10}
	text, err := files.ReadFile("schemata")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		resource, entries, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || (resource != "L3" && resource != "MB") {
			continue // Trimtab does not allocate L2 caches, or code and data separately (CDP)
		}
		for entry := range strings.SplitSeq(entries, ";") {
			id, value, _ := strings.Cut(entry, "=")
			n, err := strconv.Atoi(strings.TrimSpace(id))
			if err != nil {
				return nil, fmt.Errorf("read schemata: an entry of the line %q has no cache id", strings.TrimSpace(line))
			}
			m.cacheIDs[resource] = append(m.cacheIDs[resource], n)
			if v, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				m.maxValue[resource] = max(m.maxValue[resource], v)
			}
		}
	}
	if full := m.maxValue["MB"]; full > 100 && full != amdNoLimit {
		return nil, errors.New("resctrl is mounted with the option mba_MBps, which allows no bandwidth in percent: mount it without this option")
	}
	if n, err := readNumber(files, "info/L3/cbm_mask", 16); err == nil {
		m.waysMask = n
	}
	if n, err := readNumber(files, "info/L3/min_cbm_bits", 10); err == nil {
		m.minWays = int(n)
	}
	if n, err := readNumber(files, "info/MB/bandwidth_gran", 10); err == nil {
		m.bandwidthStep = int(n)
	}
	return m, nil
}

// readNumber reads a file that has one number of at most 32 bits.
func readNumber(files FS, path string, base int) (uint64, error) {
	text, err := files.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), base, 32)
}

// sameLine reports whether the text of a schemata file already has a line. It ignores differences in blanks and leading
// zeros.
func sameLine(schemata, line string) bool {
	plain := func(s string) string {
		s = strings.TrimSpace(s)
		resource, rest, _ := strings.Cut(s, ":")
		var out []string
		for entry := range strings.SplitSeq(rest, ";") {
			id, value, _ := strings.Cut(entry, "=")
			out = append(out, strings.TrimSpace(id)+"="+strings.TrimLeft(strings.TrimSpace(value), "0"))
		}
		return strings.TrimSpace(resource) + ":" + strings.Join(out, ";")
	}
	for have := range strings.Lines(schemata) {
		if plain(have) == plain(line) {
			return true
		}
	}
	return false
}
