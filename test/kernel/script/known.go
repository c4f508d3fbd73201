package script

import "path"

// known is a difference between the fake and kernels that is meant to be.
type known struct {
	kernel string // pattern of Recording.Kernel
	name   string // pattern of the case
	step   string // pattern of the step
	what   string // pattern of the file's base name, or "errno"
	reason string
}

// knownDifferences are all of them. A row that matches nothing fails the test.
var knownDifferences = []known{
	{
		kernel: "6.12.*", name: "a partition beside others", step: "write l/cpuset.cpus *", what: "cpuset.cpus.exclusive.effective",
		reason: "the kernel goes on showing what a partition had that a sibling made invalid; nobody is kept from these CPUs any more",
	},
	{
		kernel: "6.12.*", name: "a remote partition and a sibling", what: "cpuset.cpus.effective",
		reason: "the kernel does not give the root back what a remote partition had that a sibling made invalid, until cpuset.cpus.exclusive above it is cleared",
	},
	{
		kernel: "6.1.*", name: "a partition that is emptied",
		reason: "the kernel takes an empty set in a valid partition, which then has no CPU, and never gives what it had back to the root",
	},
}

// Explain fills in the reasons of the differences between a kernel and the fake
// that are meant to be, and returns those that are not.
func Explain(kernel string, all []Difference) (unexplained []Difference, used map[int]bool) {
	used = map[int]bool{}
	for i := range all {
		d := &all[i]
		for n, k := range knownDifferences {
			if match(k.kernel, kernel) && match(k.name, d.Case) && match(k.step, d.Step) && match(k.what, path.Base(d.What)) {
				d.Reason = k.reason
				used[n] = true
				break
			}
		}
		if d.Reason == "" {
			unexplained = append(unexplained, *d)
		}
	}
	return unexplained, used
}

func match(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}
