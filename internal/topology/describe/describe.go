// Package describe makes a topology.Machine from a short text such as "2s x 2n x 8c x 2t, 64GiB/node". It reads no
// files. To make the Machine of this host, use package sysfs.
package describe

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// DefaultMemory is the memory of each NUMA node, in bytes, if the text has no memory.
const DefaultMemory = 16 << 30

// shape is the parsed text.
type shape struct {
	// Each number counts parts of the machine within one part of the next higher level, for example dies per socket;
	// sockets counts the sockets of the machine. The variable levels lists the levels from high to low.
	sockets, dies, nodes, caches, cores, threads int
	memory                                       uint64            // bytes per node
	pages                                        map[uint64]uint64 // huge pages per node, by size in bytes
	present                                      map[int]bool      // the CPUs that exist, by id; nil for all
}

// level is one level of the machine, such as dies.
type level struct {
	letter byte              // the letter of the level in the text
	name   string            // for messages
	field  func(*shape) *int // returns a pointer to the level's number in a shape
}

// levels has the levels of a machine, the highest first.
var levels = []level{
	{'s', "sockets", func(s *shape) *int { return &s.sockets }},
	{'d', "dies per socket", func(s *shape) *int { return &s.dies }},
	{'n', "NUMA nodes per die", func(s *shape) *int { return &s.nodes }},
	{'l', "L3 caches per node", func(s *shape) *int { return &s.caches }},
	{'c', "cores per node, or per L3 cache", func(s *shape) *int { return &s.cores }},
	{'t', "threads per core", func(s *shape) *int { return &s.threads }},
}

// memoryUnits are the units of memory that a text may have, with their sizes in bytes.
var memoryUnits = []struct {
	name  string
	bytes uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// Parse makes the machine that a text describes. The text begins with numbers that are joined by x. Each number has a
// letter, in this order: sockets (s), dies per socket (d), NUMA nodes per die (n), L3 caches per node (l), cores (c)
// and threads per core (t). The number of cores is per L3 cache, or per node if the text has no l. A missing number
// means 1. A missing l means that the L3 caches are unknown.
//
// Two other parts may follow, each after a comma: the memory of each node, such as "64GiB/node", and then the huge pages
// that each node has reserved, such as "16 x 1GiB pages/node".
//
// CPUs are numbered as Linux does on most machines: first the first threads of all cores, socket by socket and node by
// node, and then the second threads.
func Parse(text string) (*topology.Machine, error) { return ParsePresent(text, "") }

// ParsePresent makes the machine that a text describes, but with only some of its CPUs. presentCPUs is the kernel list
// of these CPUs, such as "0-3,8"; an empty list means all CPUs. The CPUs have the same numbers as without a list. NUMA
// nodes without a CPU do not exist.
func ParsePresent(text, presentCPUs string) (*topology.Machine, error) {
	all := strings.Split(text, ",")
	s, err := parseShape(all[0])
	if err == nil {
		err = s.setPresent(presentCPUs)
	}
	for i, rest := range all[1:] {
		if err != nil {
			break
		}
		if pages, is := strings.CutSuffix(strings.TrimSpace(rest), "pages/node"); is {
			err = s.parsePages(pages)
		} else if s.memory, err = parseMemory(rest); err == nil && i > 0 {
			err = errors.New("write the memory only once, and before the huge pages")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("machine %q: %w", shorten(text), err)
	}
	m, err := s.machine()
	if err != nil {
		return nil, fmt.Errorf("machine %q: %w", shorten(text), err)
	}
	return m, nil
}

// parseShape reads the numbers before the first comma.
func parseShape(text string) (shape, error) {
	s := shape{sockets: 1, dies: 1, nodes: 1, cores: 1, threads: 1, memory: DefaultMemory}
	if strings.TrimSpace(text) == "" {
		return s, errors.New(`the description is empty; write for example "2s x 2n x 8c x 2t"`)
	}
	next := 0
	for field := range strings.SplitSeq(strings.ReplaceAll(text, "×", "x"), "x") {
		field = strings.TrimSpace(field)
		if field == "" {
			return s, errors.New("a number with a letter is missing before or after an x")
		}
		i, n, err := parseLevel(field)
		if err != nil {
			return s, err
		}
		if i < next {
			return s, fmt.Errorf("%q is repeated or out of order: the order is s, d, n, l, c, t", field)
		}
		next = i + 1
		*levels[i].field(&s) = n
	}
	return s, nil
}

// setPresent stores which CPUs exist. It returns an error if the description has too many CPUs, or if it lacks one of
// presentCPUs.
func (s *shape) setPresent(presentCPUs string) error {
	// Each factor is at most MaxCPUs, so the product of six fits an int.
	n, most := s.sockets*s.dies*s.nodes*max(s.caches, 1)*s.cores*s.threads, topology.MaxCPUs
	if presentCPUs != "" {
		ids, err := topology.ParseList(presentCPUs)
		if err != nil {
			return fmt.Errorf("present CPUs: %w", err)
		}
		s.present, most = make(map[int]bool, len(ids)), topology.MaxID+1
		for _, id := range ids {
			if id >= n {
				return fmt.Errorf("present CPUs %q: the description has only CPUs 0-%d, and no CPU %d", shorten(presentCPUs), n-1, id)
			}
			s.present[id] = true
		}
	}
	if n > most {
		return fmt.Errorf("the description has %d CPUs; at most %d are supported", n, most)
	}
	return nil
}

// parseLevel reads a number with its letter, such as "2s". It returns the index in levels, and the number.
func parseLevel(field string) (index, count int, err error) {
	for i, p := range levels {
		if field[len(field)-1] != p.letter {
			continue
		}
		number := strings.TrimSpace(field[:len(field)-1])
		n, err := strconv.Atoi(number)
		if err != nil || number[0] == '+' || n < 1 || n > topology.MaxCPUs {
			return 0, 0, fmt.Errorf("%s: %q is not a number from 1 to %d", p.name, shorten(number), topology.MaxCPUs)
		}
		return i, n, nil
	}
	return 0, 0, fmt.Errorf("%q is none of s (sockets), d (dies), n (nodes), l (L3 caches), c (cores), t (threads)", shorten(field))
}

// parseMemory reads the memory of each node, such as "64GiB/node", and returns it in bytes.
func parseMemory(text string) (uint64, error) {
	amount, per, hasNode := strings.Cut(strings.TrimSpace(text), "/")
	if !hasNode || strings.TrimSpace(per) != "node" {
		return 0, fmt.Errorf(`memory %q: write the memory per node, as in "64GiB/node"`, shorten(text))
	}
	return parseBytes("memory", strings.TrimSpace(amount))
}

// parsePages reads a number of huge pages and their size, such as "16 x 1GiB".
func (s *shape) parsePages(text string) error {
	number, size, hasSize := strings.Cut(text, "x")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || !hasSize {
		return fmt.Errorf(`huge pages %q: write their number and size, as in "16 x 1GiB pages/node"`, shorten(text))
	}
	bytes, err := parseBytes("huge pages of", strings.TrimSpace(size))
	if err != nil {
		return err
	}
	if s.pages == nil {
		s.pages = map[uint64]uint64{}
	}
	if s.pages[bytes] += n; bytes*s.pages[bytes] > s.memory || bytes > s.memory {
		return fmt.Errorf("huge pages %q are more than the memory of a node", shorten(text))
	}
	return nil
}

// parseBytes reads an amount with a unit. Its errors begin with errorPrefix.
func parseBytes(errorPrefix, amount string) (uint64, error) {
	for _, u := range memoryUnits {
		number, ok := strings.CutSuffix(amount, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil || n == 0 || n > math.MaxInt64/u.bytes {
			return 0, fmt.Errorf("%s %q: want a positive integer, and together with the unit less than 2^63 bytes", errorPrefix, shorten(number))
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%s %q has none of the units KiB, MiB, GiB, TiB", errorPrefix, shorten(amount))
}

// machine makes the machine with this shape.
func (s shape) machine() (*topology.Machine, error) {
	perNode := max(s.caches, 1) * s.cores
	perDie := s.nodes * perNode
	perSocket := s.dies * perDie
	cores := s.sockets * perSocket
	cpus := make([]topology.CPU, 0, cores*s.threads)
	memory := map[int]uint64{}
	for t := range s.threads {
		for c := range cores {
			if s.present != nil && !s.present[t*cores+c] {
				continue
			}
			node := c / perNode
			memory[node] = s.memory
			cpu := topology.CPU{
				ID: t*cores + c, Core: c % perSocket, Die: c % perSocket / perDie, Package: c / perSocket, Node: node,
			}
			if s.caches > 0 {
				cpu.L3 = c / s.cores
			}
			cpus = append(cpus, cpu)
		}
	}
	m, err := topology.New(cpus, memory)
	if err != nil || s.pages == nil {
		return m, err
	}
	l := topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	for i := range l.Nodes {
		l.Nodes[i].HugePages = s.pages
	}
	return topology.Build(l)
}

// shorten limits untrusted text in a message to 64 bytes.
func shorten(s string) string {
	if len(s) > 64 {
		return s[:61] + "..."
	}
	return s
}
