// Package rulestest runs test cases against the administrator's rules. A case has a pod, and the expected effect of
// the rules on one container of this pod. The package reads no file, and chooses no CPUs.
package rulestest
