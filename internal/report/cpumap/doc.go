// Package cpumap draws the CPUs of a node and who may use each: as text (Map), as tiles on a terminal (Tiles), with
// their load (LoadLines) and as SVG. A CPU has the same mark in all drawings.
package cpumap
