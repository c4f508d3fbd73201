package real

import (
	"fmt"
	"strconv"
	"strings"
)

// parseCPUs parses a kernel CPU list. It does not use the agent's parser, so that both cannot have the same error.
func parseCPUs(list string) (map[int]bool, error) {
	cpus := map[int]bool{}
	if list == "" {
		return cpus, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, errLo := strconv.Atoi(first)
		hi, errHi := strconv.Atoi(last)
		if errLo != nil || errHi != nil || lo > hi {
			return nil, fmt.Errorf("not a CPU list: %q", list)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus[cpu] = true
		}
	}
	return cpus, nil
}
