// Package page tests the web page of a node in a real browser: Chromium, driven over its debugging pipe, and an agent of
// this process on the embedded runtime.
package page
