package script

import "path"

// knownDifference is an intended difference between the simulated kernel and a real one. An empty pattern matches
// everything.
type knownDifference struct {
	kernel string // pattern of Recording.Kernel
	name   string // pattern of the case
	step   string // pattern of the step
	what   string // pattern of the file's base name, or "errno"
	reason string
}

// knownDifferences lists all intended differences. A row that matches nothing fails the test.
var knownDifferences = []knownDifference{
	{
		kernel: "6.12.*", name: "a partition beside others", step: "write l/cpuset.cpus *", what: "cpuset.cpus.exclusive.effective",
		reason: "the kernel still shows the CPUs of a partition that a sibling made invalid, although other cgroups may use them again",
	},
	{
		kernel: "6.12.*", name: "a remote partition and a sibling", what: "cpuset.cpus.effective",
		reason: "if a sibling makes a remote partition invalid, the kernel returns its CPUs to the root only after cpuset.cpus.exclusive above it is cleared",
	},
	{
		kernel: "6.1.*", name: "a partition that is emptied",
		reason: "the kernel accepts an empty set in a valid partition, which then has no CPU, and never returns its CPUs to the root",
	},
}

// Explain sets the Reason of each intended difference between a real kernel and the simulated one, and returns the
// other differences. The result used has the indexes of the rows of knownDifferences that matched.
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

// match reports whether a text matches a pattern of path.Match. An empty pattern matches every text.
func match(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}
