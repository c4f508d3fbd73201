package intent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Hugepages are the limits of huge pages that a pod sets for its containers.
type Hugepages struct {
	// Limits are the limits in bytes, by container and by page size, such as "2MB".
	Limits map[string]map[string]int64
	// CappedBy names the authorization rule that forbids higher limits than Kubernetes gave the container. The kubelet
	// sends these limits in its request to the runtime. The name is "" if no rule forbids higher limits.
	CappedBy string
}

// hugepagesPrefix is the prefix of the names of Kubernetes' huge page resources.
const hugepagesPrefix = "hugepages-"

// readHugepages reads the annotation TrimtabHugepages: limits of huge pages by container and resource.
func readHugepages(t *podTexts, out *Pod) {
	var asked map[string]map[string]quantity
	if !t.decode(TrimtabHugepages, &asked, out) || len(asked) == 0 {
		return
	}
	limits := make(map[string]map[string]int64, len(asked))
	for _, container := range sortedKeys(asked) {
		for _, resource := range sortedKeys(asked[container]) {
			size, limit, err := hugepageLimit(resource, asked[container][resource])
			if err != nil {
				out.reportMalformed(TrimtabHugepages, t.annotation(TrimtabHugepages), "container %s: %v", printable(container), err)
				continue
			}
			if limits[container] == nil {
				limits[container] = map[string]int64{}
			}
			limits[container][size] = limit
		}
	}
	out.Hugepages = Sourced[Hugepages]{Hugepages{Limits: limits}, TrimtabHugepages}
}

// hugepageLimit parses a resource such as hugepages-2Mi and its amount. It returns the page size in the
// form of cgroup file names, such as 2MB.
func hugepageLimit(resource string, amount quantity) (size string, limit int64, err error) {
	text, ok := strings.CutPrefix(resource, hugepagesPrefix)
	at := slices.IndexFunc(pageUnits[:], func(u pageUnit) bool { return strings.HasSuffix(text, u.suffix) })
	if !ok || at < 0 {
		return "", 0, fmt.Errorf("%q is not a huge page resource such as hugepages-2Mi", printable(resource))
	}
	unit := pageUnits[at]
	n, err := quantity(strings.TrimSuffix(text, unit.suffix)).integer()
	if err != nil || n <= 0 || n >= 1024 || n&(n-1) != 0 || text != strconv.FormatInt(n, 10)+unit.suffix {
		return "", 0, fmt.Errorf("%q is not a huge page resource such as hugepages-2Mi", printable(resource))
	}
	if limit, err = amount.integer(); err != nil {
		return "", 0, fmt.Errorf("%s: %w", resource, err)
	}
	if page := n * unit.bytes; limit < 0 || limit%page != 0 {
		return "", 0, fmt.Errorf("%s: %d bytes is not a multiple of the page size", resource, limit)
	}
	return strconv.FormatInt(n, 10) + unit.name, limit, nil
}

// HugepageSize returns the page size of a resource such as hugepages-2Mi, in bytes; ok is false for
// other resources.
func HugepageSize(resource string) (bytes uint64, ok bool) {
	text, ok := strings.CutPrefix(resource, hugepagesPrefix)
	if !ok {
		return 0, false
	}
	for _, unit := range pageUnits {
		number, is := strings.CutSuffix(text, unit.suffix)
		if n, err := strconv.ParseUint(number, 10, 10); is && err == nil && n > 0 {
			return n * uint64(unit.bytes), true //nolint:gosec // a constant of the table
		}
	}
	return 0, false
}

// HugepageName returns the name of the resource for a page size in bytes, such as hugepages-2Mi.
func HugepageName(bytes uint64) string {
	at := 0
	for at+1 < len(pageUnits) && bytes%uint64(pageUnits[at+1].bytes) == 0 { //nolint:gosec // a constant of the table
		at++
	}
	return hugepagesPrefix + strconv.FormatUint(bytes/uint64(pageUnits[at].bytes), 10) + pageUnits[at].suffix //nolint:gosec // the same
}

// pageUnit is a unit of page sizes: its suffix in Kubernetes' resource names (Mi), its name in the names of cgroup
// files (MB), and its number of bytes.
type pageUnit struct {
	suffix, name string
	bytes        int64
}

var pageUnits = [...]pageUnit{{"Ki", "KB", 1 << 10}, {"Mi", "MB", 1 << 20}, {"Gi", "GB", 1 << 30}}
