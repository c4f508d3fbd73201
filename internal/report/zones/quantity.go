package zones

import "strconv"

// quantity formats an amount of a resource as Kubernetes does: CPUs as "2" or "1500m", and other resources as a number.
func quantity(name string, amount int64) string {
	switch {
	case name != CPUs:
		return strconv.FormatInt(amount, 10)
	case amount%1000 == 0:
		return strconv.FormatInt(amount/1000, 10)
	}
	return strconv.FormatInt(amount, 10) + "m"
}

// HugePages returns Kubernetes' resource name for huge pages of a size in bytes, such as hugepages-2Mi.
func HugePages(size uint64) string {
	units := []string{"", "Ki", "Mi", "Gi"}
	i := 0
	for ; i < len(units)-1 && size%1024 == 0 && size > 0; i++ {
		size /= 1024
	}
	return HugePagesPrefix + strconv.FormatUint(size, 10) + units[i]
}
