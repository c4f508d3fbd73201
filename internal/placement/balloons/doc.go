// Package balloons is the placement policy balloons. A balloon is a set of CPUs that its containers share, and that no
// other containers use. Each balloon has a type. The type determines which containers its balloons take, and how large
// its balloons may be. A balloon inflates and deflates with the CPU requests of its containers. Names and rules are
// those of the policy balloons of containers/nri-plugins (0.14); docs/balloons.md lists the differences.
package balloons
