//! The console in a real Chromium: every page with real data in four looks, by keyboard alone, each action and its
//! effect, and pages that keep themselves up to date.

mod actions;
mod keyboard;
mod live;
mod pages;
mod world;
