// Package node tests the agent's image on a real containerd. The tests import the image with ctr, and run it as the
// Helm chart specifies.
package node
