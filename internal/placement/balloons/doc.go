// Package balloons is the placement policy with which containers share sets of CPUs that no other containers use. Each
// set, a balloon, belongs to a type. Types say which containers they take and how large their balloons may be. A
// balloon inflates and deflates with the requests of its containers. Names and rules are those of the policy balloons
// of containers/nri-plugins (0.14); docs/balloons.md lists the differences.
package balloons
