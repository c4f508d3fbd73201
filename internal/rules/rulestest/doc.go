// Package rulestest runs test cases against the administrator's rules. A case has a pod, and the expected effect of
// the rules on one of its containers. The package reads no file, and places no container.
package rulestest
