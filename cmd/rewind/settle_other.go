//go:build !linux

package main

func dropProgramPages() error { return nil }
