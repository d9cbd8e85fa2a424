// Two films locked to each other: whichever is heard leads, the other shows the same moment.
//
// In: an element with two videos (`.query`, `.reference`) and the segments that they share
// (data-segments). Out: an event `moment` on the element whenever the moment changes.
// The desk and the evidence page use it. A copy at another speed is followed by playbackRate and
// pulled back gently when it drifts; a reversed one is stepped, since browsers play forwards only.
"use strict";

class LockedPair {
  static GAIN = 1.5; // share of a second's drift that is made up in a second
  static MOST_PULL = 0.25; // of the speed
  static JUMP = 0.3; // seconds of drift from which on the follower is set instead of pulled

  constructor(root) {
    this.root = root;
    this.query = root.querySelector("video.query");
    this.reference = root.querySelector("video.reference");
    this.segments = JSON.parse(root.dataset.segments);
    this.index = 0;
    this.free = null; // a line through a point that was chosen, instead of a segment's
    this.rate = 1;
    this.heard = "none";
    this.loops = true;
    this.wants = false; // to be playing
    this.frame = 1 / 25; // seconds; learnt from the film
    for (const film of [this.query, this.reference]) {
      film.muted = true;
      for (const name of ["canplay", "seeked", "waiting", "playing", "ended", "loadedmetadata"])
        film.addEventListener(name, () => this.settle());
      film.addEventListener("timeupdate", () => this.tell());
      film.addEventListener("seeked", () => this.tell());
      film.addEventListener("ended", () => film === this.leader && this.wants && this.atEnd());
    }
    this.watch();
  }

  get segment() { return this.segments[this.index]; }
  get leader() { return this.heard === "reference" ? this.reference : this.query; }
  get follower() { return this.leader === this.query ? this.reference : this.query; }

  // The line of the segment: upload second `q` shows reference second `r`, which passes `slope`
  // times as fast, backwards where it is negative.
  get line() {
    if (this.free) return this.free;
    const s = this.segment;
    const slope = (s.reference_end - s.reference_start) / (s.query_end - s.query_start);
    return s.is_reversed
      ? { q: s.query_start, r: s.reference_end, slope: -slope }
      : { q: s.query_start, r: s.reference_start, slope };
  }

  referenceAt(second) { return this.line.r + this.line.slope * (second - this.line.q); }
  queryAt(second) { return this.line.q + (second - this.line.r) / this.line.slope; }
  follow(second) {
    const at = this.leader === this.query ? this.referenceAt(second) : this.queryAt(second);
    return Math.min(Math.max(at, 0), this.follower.duration || Infinity);
  }

  get followerRate() {
    const speed = Math.abs(this.line.slope);
    return this.rate * (this.leader === this.query ? speed : 1 / speed);
  }

  // Where the segment begins and ends for the leader.
  get ends() {
    const side = this.leader === this.query ? "query" : "reference";
    return [this.segment[side + "_start"], this.segment[side + "_end"]];
  }

  play() { this.wants = true; this.settle(); }
  pause() { this.wants = false; this.query.pause(); this.reference.pause(); this.line_up(); this.tell(); }
  toggle() { if (this.wants) this.pause(); else { this.startOver(); this.play(); } }

  startOver() {
    const [start, end] = this.ends;
    if (!this.free && this.loops && this.leader.currentTime >= end - 0.05) this.seekLeader(start);
  }

  // Both films at the moment that the leader shows.
  line_up() {
    const at = this.follow(this.leader.currentTime);
    if (Math.abs(this.follower.currentTime - at) > 0.02) this.follower.currentTime = at;
  }

  seekLeader(second) {
    this.leader.currentTime = Math.min(Math.max(second, 0), this.leader.duration || second);
    this.follower.currentTime = this.follow(this.leader.currentTime);
  }

  // An upload second; the reference follows.
  seek(second) {
    this.seekLeader(this.leader === this.query ? second : this.referenceAt(second));
    this.tell();
  }

  go(index, second = null) {
    this.free = null;
    this.index = (index + this.segments.length) % this.segments.length;
    this.root.dispatchEvent(new CustomEvent("segment", { detail: this.index }));
    this.seek(second ?? this.segment.query_start);
    this.settle();
  }

  // Any two moments, locked as the nearest segment runs.
  goFreely(query, reference) {
    const inside = this.segments.findIndex((s) => s.match === this.segment.match &&
      query >= s.query_start && query < s.query_end &&
      reference >= s.reference_start && reference < s.reference_end);
    if (inside >= 0) {
      this.go(inside, query);
      return;
    }
    this.free = { q: query, r: reference, slope: this.line.slope };
    this.seek(query);
  }

  step(frames) {
    this.wants = false;
    this.query.pause();
    this.reference.pause();
    this.seekLeader(this.leader.currentTime + frames * this.frame);
    this.tell();
  }

  hear(side) {
    this.heard = side;
    this.query.muted = side !== "query";
    this.reference.muted = side !== "reference";
    this.line_up();
    this.settle();
  }

  setRate(rate) { this.rate = rate; this.settle(); }

  // Play as soon as both can, and let neither run ahead while the other waits for data.
  settle() {
    const { leader, follower } = this;
    leader.playbackRate = this.rate;
    if (!this.wants) return;
    const isStepped = this.line.slope < 0;
    if (isStepped) follower.pause();
    const isAtEnd = follower.currentTime >= (follower.duration || Infinity) - 0.05;
    const others = isStepped || isAtEnd ? [] : [follower];
    const areReady = [leader, ...others].every((film) => film.readyState >= 3 && !film.seeking);
    if (!areReady) {
      leader.pause();
      follower.pause();
      return;
    }
    if (others.length) follower.playbackRate = clamp(this.followerRate, 0.0625, 16);
    for (const film of [leader, ...others]) if (film.paused) this.start(film);
    this.tell();
  }

  start(film) {
    film.play().catch((error) => {
      if (error.name !== "NotAllowedError") return; // a pause or a seek came between
      if (film.muted) { this.wants = false; this.tell(); return; }
      this.hear("none"); // browsers let nothing sound before the first key or click
    });
  }

  // Called with each frame of the leader, else with each frame of the screen.
  watch() {
    let last = null;
    const onFrame = (now, facts) => {
      if (facts && last !== null && this.wants) {
        const passed = facts.mediaTime - last;
        if (passed > 0.004 && passed < this.frame * 1.05) this.frame = passed;
      }
      last = facts ? facts.mediaTime : null;
      this.keep();
    };
    const ask = () => {
      const film = this.leader;
      if (film.requestVideoFrameCallback && !film.paused) {
        let isDone = false;
        const once = (now, facts) => { if (!isDone) { isDone = true; onFrame(now, facts); ask(); } };
        film.requestVideoFrameCallback(once);
        setTimeout(() => once(0, null), 200); // no frame comes from a film that waits
      } else {
        requestAnimationFrame((now) => { if (this.wants) onFrame(now, null); ask(); });
      }
    };
    ask();
  }

  keep() {
    const { leader, follower } = this;
    if (!this.wants || leader.seeking) return;
    const [start, end] = this.ends;
    if (!this.free && leader.currentTime >= end - 0.01) { this.atEnd(start); return; }
    const wanted = this.follow(leader.currentTime);
    const drift = wanted - follower.currentTime;
    if (this.line.slope < 0) {
      if (!follower.seeking && Math.abs(drift) > this.frame / 2) follower.currentTime = wanted;
    } else if (!follower.seeking) {
      if (Math.abs(drift) > LockedPair.JUMP) follower.currentTime = wanted;
      else {
        const pull = clamp(drift * LockedPair.GAIN, -LockedPair.MOST_PULL, LockedPair.MOST_PULL);
        follower.playbackRate = clamp(this.followerRate * (1 + pull), 0.0625, 16);
      }
    }
    this.tell();
  }

  atEnd() {
    if (this.loops && !this.free) this.seekLeader(this.ends[0]);
    else this.pause();
  }

  tell() {
    const detail = {
      query: this.query.currentTime, reference: this.reference.currentTime,
      isPlaying: this.wants, slope: this.line.slope,
    };
    this.root.dispatchEvent(new CustomEvent("moment", { detail }));
  }
}

function clamp(value, low, high) { return Math.min(Math.max(value, low), high); }
