// Package page tests the web page of a node in a real browser. The tests control Chromium through its debugging pipe.
// The agent runs in the process of the tests, with a simulated container runtime.
package page
