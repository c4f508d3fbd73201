// Package term makes text for terminals: blocks of lines side by side, colour, and foreign text without control
// sequences.
package term
