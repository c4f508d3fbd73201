// Package term formats text for terminals: blocks of lines, colours, units, and text from elsewhere without control
// sequences.
package term
